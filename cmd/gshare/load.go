package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const loadLong = `Send requests to a server at a rate that does not depend on its answers, and measure their latency.

Latency is measured from the time at which a request was due, so if the server stalls, the requests that become due meanwhile count as
late. load warns you if it was too slow itself, since its figures are then not the server's alone.

The rate is constant (--rate), rises or falls (--ramp 10:100), or follows a trace (--trace): a file of rates, with one number for each
second, or a trace of Azure Functions 2019, 2021 or Azure LLM inference 2023. --speed plays a trace faster, --scale multiplies its
requests.

The exit code is 1 if no request was answered and, with --slo, if fewer than 99 % of the requests were answered within the objective
(--objective changes the percentage). With --stream, the objective applies to the first token.

With --file, load sends several loads at the same time, and prints a table with a row for each. The file is a YAML list. The fields of
a load are named after the flags. In addition there are url (default: the URL argument) and function (the Host header of the requests):

  - {function: resnet50, rate: 40, slo: 69ms}
  - {function: bert, ramp: "1:20", slo: 200ms, header: ["Content-Type:text/plain"], data: "hello"}`

// loadRun holds the flags of gshare load.
type loadRun struct {
	format    output.Format
	plan      load.Plan
	schedule  scheduleFlags
	request   requestFlags
	objective float64 // percentage of the requests
	plot      string
}

// scheduleFlags say when requests are sent.
type scheduleFlags struct {
	rate, scale, speed    float64
	ramp, arrivals, trace string
	series                int
	seed                  uint64
}

// requestFlags say what is sent.
type requestFlags struct {
	method, data string
	headers      []string
	stream       bool
}

func (r *requestFlags) isZero() bool {
	return r.method == "" && r.data == "" && len(r.headers) == 0 && !r.stream
}

var _ = toTest.add(loadCommand)

func loadCommand() *cobra.Command {
	l := &loadRun{
		plan:      load.Plan{Length: 10 * time.Second, Timeout: 30 * time.Second, MaxInFlight: 10_000},
		schedule:  scheduleFlags{rate: 10, series: -1, scale: 1, speed: 1, arrivals: "poisson", seed: 1},
		objective: 99,
	}
	var file string
	cmd := &cobra.Command{
		Use: "load URL", Short: "Measure the latency of a server under load", Long: loadLong,
		Args: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				return cli.AtMost(1)(cmd, args)
			}
			return cli.Exactly(1)(cmd, args)
		},
		Example: "  gshare load http://localhost:8080/ --rate 200 --duration 30s --slo 69ms --header Host:resnet50\n" +
			"  gshare load http://localhost:8080/v2/models/resnet50/infer --data @request.json --ramp 10:200 --duration 2m --plot load.svg\n" +
			"  gshare load http://localhost:8080/ --file loads.yaml --duration 1m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				return l.runFile(cmd, file, strings.Join(args, ""))
			}
			h, err := l.prepare(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			if err := checkSchedule(cmd.Flags()); err != nil {
				return cli.Usage(err)
			}
			if err := chart.Check(l.plot); err != nil {
				return cli.Usagef("--plot: %w", err)
			}
			result, err := l.run(cmd.Context(), h)
			if err != nil {
				return cli.Usage(err)
			}
			return l.write(cmd.OutOrStdout(), args[0], result)
		},
	}
	l.format.AddTo(cmd)
	l.addTo(cmd.Flags())
	cmd.Flags().StringVar(&l.plot, "plot", "", "write latency over time to this .svg or .png file")
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML file of loads to send at the same time; flags apply to the loads that do not set them")
	return cmd
}

// addTo adds the flags that describe a load. The values that they have now are the defaults.
func (l *loadRun) addTo(f *pflag.FlagSet) {
	s, p, r := &l.schedule, &l.plan, &l.request
	f.Float64Var(&s.rate, "rate", s.rate, "requests per second")
	f.StringVar(&s.ramp, "ramp", s.ramp, "first and last rate of a linear ramp over the duration, such as 10:100")
	f.StringVar(&s.trace, "trace", s.trace, "trace file that sets the rate")
	f.IntVar(&s.series, "series", s.series, "function of the trace to replay, numbered from 0 by descending rate; -1 for the sum of all")
	f.Float64Var(&s.scale, "scale", s.scale, "requests to send for each request of the trace")
	f.Float64Var(&s.speed, "speed", s.speed, "seconds of the trace to replay per second")
	f.StringVar(&s.arrivals, "arrivals", s.arrivals, "gaps between requests: poisson, constant, or gamma:CV, where CV is their coefficient of variation")
	f.Uint64Var(&s.seed, "seed", s.seed, "random seed of the arrival times")
	f.DurationVarP(&p.Length, "duration", "d", p.Length, "length of the run")
	f.DurationVar(&p.WarmUp, "warm-up", p.WarmUp, "time at the start of the run that is not measured")
	f.DurationVar(&p.Timeout, "timeout", p.Timeout, "time after which a request counts as failed")
	f.IntVar(&p.MaxInFlight, "max-in-flight", p.MaxInFlight, "maximum number of concurrent requests; requests due beyond it are not sent")
	f.DurationVar(&p.SLO, "slo", p.SLO, "latency objective of a request")
	f.Float64Var(&l.objective, "objective", l.objective, "percentage of the requests that must be answered within the SLO")
	f.StringVarP(&r.method, "method", "X", r.method, "HTTP method (default POST with --data, else GET)")
	f.StringArrayVarP(&r.headers, "header", "H", r.headers, "header of the requests, such as Host:resnet50; can be repeated")
	f.StringVar(&r.data, "data", r.data, "body of the requests, or @FILE to read it from a file")
	f.BoolVar(&r.stream, "stream", r.stream, "read responses as server-sent events, one token each")
}

// prepare returns the request to send, and completes the plan.
func (l *loadRun) prepare(url string) (*load.HTTP, error) {
	if !(l.objective > 0 && l.objective <= 100) {
		return nil, fmt.Errorf("--objective %v: want a percentage above 0 and at most 100", l.objective)
	}
	h, err := l.request.build(url)
	if err != nil {
		return nil, err
	}
	switch {
	case l.plan.Timeout <= 0:
		return nil, fmt.Errorf("--timeout %v: want a time above 0", l.plan.Timeout)
	case l.plan.MaxInFlight < 1:
		return nil, fmt.Errorf("--max-in-flight %d: want at least 1", l.plan.MaxInFlight)
	}
	if l.plan.Schedule, err = l.schedule.build(l.plan.Length); err != nil {
		return nil, asFlag(err)
	}
	return h, asFlag(l.plan.Validate())
}

// asFlag names the flag in an error about a field of a plan or of its arrivals.
func asFlag(err error) error {
	field, ok := errors.AsType[*share.FieldError](err)
	flag := map[string]string{
		"length": "duration", "warmUp": "warm-up", "timeout": "timeout", "maxInFlight": "max-in-flight", "slo": "slo", "cv": "arrivals",
	}
	if name := flag[fieldName(field)]; ok && name != "" {
		return fmt.Errorf("--%s: %s", name, field.Reason)
	}
	return err
}

func fieldName(f *share.FieldError) string {
	if f == nil {
		return ""
	}
	return f.Field
}

// build returns the request that the flags describe.
func (l *requestFlags) build(url string) (*load.HTTP, error) {
	h := &load.HTTP{Method: l.method, URL: url, Header: http.Header{}, Stream: l.stream, Client: load.NewHTTPClient(), Body: []byte(l.data)}
	if file, ok := strings.CutPrefix(l.data, "@"); ok {
		var err error
		if h.Body, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
	}
	if h.Method == "" {
		h.Method = http.MethodGet
		if l.data != "" {
			h.Method = http.MethodPost
		}
	}
	for _, text := range l.headers {
		name, value, ok := strings.Cut(text, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: want NAME:VALUE", text)
		}
		h.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	r, err := http.NewRequest(h.Method, url, nil)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return nil, fmt.Errorf("%q: want a URL that begins with http:// or https://", url)
	}
	if r.URL.Hostname() == "" {
		return nil, fmt.Errorf("%q: the URL names no host", url)
	}
	return h, nil
}

// build returns the arrivals that the flags describe.
func (l *scheduleFlags) build(length time.Duration) (iter.Seq[time.Duration], error) {
	series, err := l.rates(length)
	if err != nil {
		return nil, err
	}
	gaps, err := parseGaps(l.arrivals)
	if err != nil {
		return nil, err
	}
	source := arrival.Source{Series: &series, Scale: 1, Gaps: gaps}
	if l.trace != "" {
		source.Scale = l.scale
	}
	if err := source.Validate(); err != nil {
		return nil, err
	}
	if n := source.Scale * series.Rate() * length.Seconds(); n > arrival.MaxRequests {
		return nil, fmt.Errorf("about %.3g requests; want at most %d", n, arrival.MaxRequests)
	}
	return func(yield func(time.Duration) bool) {
		for _, a := range arrival.Draw([]arrival.Source{source}, length, l.seed) {
			if !yield(a.At) {
				return
			}
		}
	}, nil
}

// rates returns the number of requests in each step of the run.
func (l *scheduleFlags) rates(length time.Duration) (arrival.Series, error) {
	switch {
	case l.ramp != "" && l.trace != "":
		return arrival.Series{}, fmt.Errorf("--ramp and --trace exclude each other")
	case l.ramp != "":
		first, last, ok := strings.Cut(l.ramp, ":")
		from, fromErr := strconv.ParseFloat(first, 64)
		to, toErr := strconv.ParseFloat(last, 64)
		if !ok || fromErr != nil || toErr != nil || length < time.Second {
			return arrival.Series{}, fmt.Errorf("--ramp %q: want two rates such as 10:100, for at least a second", l.ramp)
		}
		return arrival.Ramp(from, to, int(length.Seconds())), nil
	case l.trace == "":
		if !(l.rate > 0 && l.rate <= 1e6) {
			return arrival.Series{}, fmt.Errorf("--rate %v: want a rate above 0 and at most 1e6", l.rate)
		}
		return arrival.Series{Name: "rate", Step: time.Second, Counts: []float64{l.rate}}, nil
	}
	text, err := os.ReadFile(l.trace)
	if err != nil {
		return arrival.Series{}, fmt.Errorf("--trace: %w", err)
	}
	all, err := arrival.Read(string(text))
	if err != nil {
		return arrival.Series{}, fmt.Errorf("--trace %s: %w", l.trace, err)
	}
	series := arrival.Sum(all)
	if l.series >= len(all) || l.series < -1 {
		return arrival.Series{}, fmt.Errorf("--series %d: the trace has functions 0 to %d", l.series, len(all)-1)
	}
	if l.series >= 0 {
		series = all[l.series]
	}
	if !(l.speed > 0 && l.speed <= 1e6) {
		return arrival.Series{}, fmt.Errorf("--speed %v: want a factor above 0 and at most 1e6", l.speed)
	}
	series.Step = time.Duration(float64(series.Step) / l.speed)
	return series, nil
}

// parseGaps parses the value of --arrivals.
func parseGaps(text string) (arrival.Gaps, error) {
	cv, isGamma := strings.CutPrefix(text, "gamma:")
	switch {
	case text == "poisson":
		return arrival.Exponential, nil
	case text == "constant":
		return arrival.Even, nil
	case isGamma:
		x, err := strconv.ParseFloat(cv, 64)
		if err != nil {
			break
		}
		return arrival.Gamma(x)
	}
	return nil, fmt.Errorf("--arrivals %q: want poisson, constant, or gamma:CV such as gamma:4", text)
}

// run sends the requests, with a progress bar on a terminal.
func (l *loadRun) run(ctx context.Context, h *load.HTTP) (*load.Result, error) {
	defer h.Client.CloseIdleConnections()
	bar := cli.NewBar("load", int(l.plan.Length.Seconds()))
	defer bar.End()
	return load.Run(ctx, l.plan, h, func(p load.Progress) {
		showProgress(bar, p)
	})
}

func showProgress(bar *cli.Bar, p load.Progress) {
	bar.Set(int(p.Elapsed.Seconds()), fmt.Sprintf("%d sent, %d failed, %d in flight", p.Sent, p.Failed, p.InFlight))
}

// checkSchedule returns an error for flags of which one has no effect beside the others.
func checkSchedule(f *pflag.FlagSet) error {
	for _, pair := range [][2]string{{"ramp", "trace"}, {"rate", "ramp"}, {"rate", "trace"}} {
		if f.Changed(pair[0]) && f.Changed(pair[1]) {
			return fmt.Errorf("--%s and --%s exclude each other", pair[0], pair[1])
		}
	}
	for _, name := range []string{"scale", "speed", "series"} {
		if f.Changed(name) && !f.Changed("trace") {
			return fmt.Errorf("--%s is of a trace: --trace names none", name)
		}
	}
	return nil
}

// write prints the result and returns an error if it misses the objective.
func (l *loadRun) write(w io.Writer, url string, r *load.Result) error {
	if err := l.format.Write(w, r, func(w io.Writer) error { return printLoad(w, r) }); err != nil {
		return err
	}
	if l.plot != "" {
		if err := plotLatency(url, r).WriteFile(l.plot); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	return l.check(r)
}

// check returns an error if the run was interrupted, no request was answered, or the result misses the objective.
func (l *loadRun) check(r *load.Result) error {
	switch {
	case r.Interrupted:
		return cli.WithExitCode(130, fmt.Errorf("interrupted after %.0f s", r.Seconds))
	case r.Scheduled > 0 && r.Answered == 0:
		return fmt.Errorf("none of the %d requests was answered", r.Scheduled)
	case r.SLO != nil && 100*r.SLO.Ratio < l.objective:
		return fmt.Errorf("%.2f %% of the requests were answered within %v ms; the objective is %v %%", 100*r.SLO.Ratio, r.SLO.Milliseconds, l.objective)
	}
	return nil
}

func printLoad(w io.Writer, r *load.Result) error {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("requests  %d in %.0f s (%.1f/s), %d answered (%.1f/s), %d failed", r.Scheduled, r.Seconds, r.OfferedRate, r.Answered, r.AnsweredRate, r.Failed())
	if r.Answered > 0 {
		printLatency(w, "latency", &r.Latency)
	}
	printLatency(w, "token 1", r.FirstToken)
	printLatency(w, "per token", r.TokenGap)
	if s := r.SLO; s != nil {
		p("slo       %.2f %% within %v ms, goodput %.1f/s", 100*s.Ratio, s.Milliseconds, s.Goodput)
	}
	printDoubts(w, "", r)
	return nil
}

// printDoubts prints why requests failed, and whether the client was too slow. Each line names its subject.
func printDoubts(w io.Writer, subject string, r *load.Result) {
	for _, why := range r.Reasons() {
		fmt.Fprintf(w, "failed    %s%d: %s\n", subject, r.Failures[why], why)
	}
	if r.ClientLate {
		fmt.Fprintf(w, "warning   %sthis client was too slow: it sent requests up to %.3g ms late (p99 %.3g ms); the figures are not the server's alone\n",
			subject, r.Lateness.Max, r.Lateness.P99)
	}
}

func printLatency(w io.Writer, name string, l *load.Latencies) {
	if l != nil {
		fmt.Fprintf(w, "%-9s p50 %.4g ms, p90 %.4g, p95 %.4g, p99 %.4g, p99.9 %.4g, max %.4g\n", name, l.P50, l.P90, l.P95, l.P99, l.P999, l.Max)
	}
}

// plotLatency returns a chart of the latency over time, with the objective.
func plotLatency(url string, r *load.Result) *chart.Chart {
	c := &chart.Chart{Title: url, X: "seconds", Y: "latency (ms)", Lines: []chart.Line{{Name: "p50"}, {Name: "p99"}}}
	for _, i := range r.Intervals {
		if i.Answered == 0 {
			continue
		}
		c.Lines[0].Points = append(c.Lines[0].Points, chart.Point{X: i.From, Y: i.P50})
		c.Lines[1].Points = append(c.Lines[1].Points, chart.Point{X: i.From, Y: i.P99})
	}
	if n := len(r.Intervals); r.SLO != nil && n > 0 {
		c.Lines = append(c.Lines, chart.Line{Name: "SLO", Points: []chart.Point{{X: 0, Y: r.SLO.Milliseconds}, {X: r.Intervals[n-1].From, Y: r.SLO.Milliseconds}}})
	}
	return c
}
