// Command benchgateway compares the cost of serving/gateway with that of other proxies: httputil.ReverseProxy, nginx if it is installed, and,
// with --proxies, Knative's activator with its queue-proxy and KServe's batcher. --proxies names the program built from hack/proxies. Each proxy
// runs between the same clients and the same server as a process of its own, or two for Knative. Only the processor time of the proxy counts, so
// that other work on the machine disturbs little.
//
//	go run ./hack/benchgateway
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		if err := serve(role, os.Getenv(targetVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	o := options{}
	flag.IntVar(&o.rounds, "rounds", 5, "measurements of each proxy, of which the median counts")
	flag.IntVar(&o.connections, "connections", 64, "connections of clients")
	flag.DurationVar(&o.time, "time", 4*time.Second, "time of each measurement")
	profiles := flag.String("profile", "", "folder for a processor profile of each proxy that is written in Go, of its last measurement (go tool pprof -top FILE)")
	flag.StringVar(&o.proxies, "proxies", "", "program of hack/proxies: then its proxies are measured, too")
	flag.Parse()
	if *profiles != "" {
		os.Setenv(profileVariable, *profiles) // inherited by the children
	}
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	rounds, connections int
	time                time.Duration
	proxies             string // program built from hack/proxies; if empty, its proxies are left out
}

// workload is a kind of request that clients send, and the proxies that can pass it on.
type workload struct {
	name    string
	proxies []string // the first is the baseline
	request func(proxy string) []byte
}

// figure holds what one measurement of a proxy yields.
type figure struct {
	perRequest time.Duration // processor time
	rate       float64       // requests a second
	p50, p99   time.Duration
}

func (o *options) run(ctx context.Context) error {
	proxies := []string{reverseProxy, throughGateway}
	if _, err := exec.LookPath("nginx"); err == nil {
		proxies = append(proxies, throughNginx)
	} else {
		fmt.Println("nginx is not installed: it is left out")
	}
	batchers := []string{reverseProxy, throughBatches}
	if o.proxies != "" {
		proxies, batchers = append(proxies, throughKnative), append(batchers, throughKServe)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "workload\tproxy\tprocessor us\tratio\trequests/s of a core\trequests/s\t")
	for _, w := range []workload{
		{"pass through", proxies, plainRequest},
		{"batches of 8", []string{reverseProxy, throughBatches}, func(string) []byte { return inferRequest() }},
		{"batches of 8, JSON", batchers, numbersRequest},
	} {
		if err := o.compare(ctx, w, table); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return o.added(ctx)
}

// compare measures the proxies in turn, in reverse order in every other round, and prints the medians.
func (o *options) compare(ctx context.Context, w workload, table *tabwriter.Writer) error {
	figures := map[string][]figure{}
	for round := range o.rounds {
		order := slices.Clone(w.proxies)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, proxy := range order {
			f, err := o.saturate(ctx, proxy, w.request(proxy))
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, proxy, err)
			}
			figures[proxy] = append(figures[proxy], f)
		}
	}
	base := median(figures[w.proxies[0]], func(f figure) time.Duration { return f.perRequest })
	for _, proxy := range w.proxies {
		own := median(figures[proxy], func(f figure) time.Duration { return f.perRequest })
		fmt.Fprintf(table, "%s\t%s\t%.1f\t%.2f\t%.0f\t%.0f\t\n", w.name, proxy, float64(own)/1e3, float64(own)/float64(base), 1e9/float64(own),
			median(figures[proxy], func(f figure) float64 { return f.rate }))
	}
	return nil
}

// added prints the latency that the gateway adds at half of the rate that saturates it.
func (o *options) added(ctx context.Context) error {
	f, err := o.saturate(ctx, throughGateway, plainRequest(throughGateway))
	if err != nil {
		return err
	}
	rate := f.rate / 2
	var p50s, p99s []time.Duration
	for range o.rounds {
		direct, err := o.paced(ctx, direct, plainRequest(throughGateway), rate)
		if err != nil {
			return err
		}
		through, err := o.paced(ctx, throughGateway, plainRequest(throughGateway), rate)
		if err != nil {
			return err
		}
		p50s, p99s = append(p50s, through.p50-direct.p50), append(p99s, through.p99-direct.p99)
	}
	fmt.Printf("the gateway adds %v to the median and %v to the 99th percentile at %.0f requests a second\n",
		median(p50s, func(d time.Duration) time.Duration { return d }).Round(time.Microsecond),
		median(p99s, func(d time.Duration) time.Duration { return d }).Round(time.Microsecond), rate)
	return nil
}

func median[T any, V cmp.Ordered](all []T, value func(T) V) V {
	values := make([]V, len(all))
	for i, one := range all {
		values[i] = value(one)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
