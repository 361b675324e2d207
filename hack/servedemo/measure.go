package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"text/tabwriter"
	"time"
)

// result is the outcome of serving the functions in one way.
type result struct {
	way   way
	loads []loadResult // one for each function
}

// loadResult is a row of gshare load -o json, with what gshare serve reports about the function.
type loadResult struct {
	Scheduled  int
	Latency    struct{ P50, P99 float64 } `json:"latencyMs"`
	SLO        struct{ Ratio float64 }
	ClientLate bool

	gpuSeconds float64 // reserved during the load
	starts     float64 // replicas started during the load
}

// measure serves the functions in one way, sends the load, and stops serving.
func (d *demo) measure(ctx context.Context, w way) (r result, err error) {
	serve, err := d.start(ctx, "msg=serving ", "gshare", "serve", d.file(w.file()), "--socket", d.file("run/control.sock"),
		"--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, serve.stop()) }()
	address, metrics := serve.find(`msg=serving address=(\S+)`), serve.find(`msg="serving metrics" address=(\S+)`)
	if err := awaitReplicas(ctx, metrics, w.least); err != nil {
		return r, fmt.Errorf("%w: %s", err, serve.text())
	}
	before, err := scrape(metrics)
	if err != nil {
		return r, err
	}
	out, err := d.output(ctx, "gshare", "load", "http://"+address+"/", "--file", d.file("loads.yaml"), "--data", "hello",
		"--duration", d.length.String(), "--objective", "0", "--output", "json")
	if err != nil {
		return r, err
	}
	after, err := scrape(metrics)
	if err != nil {
		return r, err
	}
	r.way = w
	if err := json.Unmarshal(out, &r.loads); err != nil || len(r.loads) != len(functions) {
		return r, fmt.Errorf("gshare load: %d loads, %w: %s", len(r.loads), err, out)
	}
	for i, f := range functions {
		since := func(name string) float64 { return after.value(name, f.name) - before.value(name, f.name) }
		r.loads[i].gpuSeconds, r.loads[i].starts = since("gshare_fleet_gpu_seconds_total"), since("gshare_fleet_starts_total")
	}
	return r, nil
}

// awaitReplicas waits until each function has at least this many ready replicas.
func awaitReplicas(ctx context.Context, metrics string, least int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		now, err := scrape(metrics)
		if err != nil {
			return err
		}
		ready := 0
		for _, f := range functions {
			if now.value("gshare_fleet_replicas", f.name, "ready") >= float64(least) {
				ready++
			}
		}
		if ready == len(functions) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d functions are ready: %w", ready, len(functions), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// page is the text of a metrics endpoint.
type page []byte

func scrape(address string) (page, error) {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// value returns a metric of a function or, if a phase is given, of its replicas in that phase. It is 0 if there is none.
func (p page) value(name, function string, phase ...string) float64 {
	labels := `function="` + function + `",namespace="default"`
	for _, s := range phase {
		labels += `,phase="` + s + `"`
	}
	found := regexp.MustCompile(`(?m)^` + name + `\{` + labels + `\} (\S+)$`).FindSubmatch(p)
	if found == nil {
		return 0
	}
	value, _ := strconv.ParseFloat(string(found[1]), 64) // cannot fail: the metrics format has numbers here
	return value
}

// printResults prints the comparison.
func printResults(to io.Writer, results []result) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVED BY\tFUNCTION\tREQUESTS\tSLO\tIN TIME\tP50\tP99\tGPU TIME\tCOLD STARTS")
	late := false
	for _, r := range results {
		all, inTime, gpuSeconds, starts := 0, 0.0, 0.0, 0.0
		for i, l := range r.loads {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%.1f %%\t%.0f ms\t%.0f ms\t%.1f s\t%.0f\n", r.way.name, functions[i].name, l.Scheduled, functions[i].slo,
				100*l.SLO.Ratio, l.Latency.P50, l.Latency.P99, l.gpuSeconds, l.starts)
			all, inTime = all+l.Scheduled, inTime+float64(l.Scheduled)*l.SLO.Ratio
			gpuSeconds, starts, late = gpuSeconds+l.gpuSeconds, starts+l.starts, late || l.ClientLate
		}
		fmt.Fprintf(t, "%s\tall\t%d\t\t%.1f %%\t\t\t%.1f s\t%.0f\n", r.way.name, all, 100*inTime/float64(max(all, 1)), gpuSeconds, starts)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b)
	for _, r := range results {
		fmt.Fprintf(&b, "%s: %s\n", r.way.name, r.way.explain)
	}
	fmt.Fprintln(&b, "GPU TIME: SM times quota of the replicas' shares, over their lives during the load: 1 s is a whole GPU for a second.")
	if late {
		fmt.Fprintln(&b, "The machine was busy: requests were sent late, which counts as latency.")
	}
	_, err := to.Write(b.Bytes())
	return err
}
