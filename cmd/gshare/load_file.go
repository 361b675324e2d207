package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
)

// fileLoad is one of the loads in a file.
type fileLoad struct {
	loadRun
	url, function string
	http          *load.HTTP
}

// name returns what the load is called in the table: its function, or else its URL.
func (l *fileLoad) name() string {
	if host := l.http.Header.Get("Host"); host != "" {
		return host
	}
	return l.url
}

// namedResult is the result of a load of a file.
type namedResult struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	*load.Result
}

// runFile sends the loads of a file at the same time and prints their results.
func (l *loadRun) runFile(cmd *cobra.Command, file, url string) error {
	if l.plot != "" {
		return cli.Usagef("--plot and --file exclude each other")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return cli.Usagef("--file: %w", err)
	}
	loads, err := l.decode(text, url)
	if err != nil {
		return cli.Usagef("%s: %w", file, err)
	}
	results, err := runLoads(cmd.Context(), loads)
	if err != nil {
		return err
	}
	if err := l.format.Write(cmd.OutOrStdout(), results, func(w io.Writer) error { return printLoads(w, results) }); err != nil {
		return err
	}
	var errs []error
	for i, r := range results {
		if err := loads[i].check(r.Result); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// decode parses a file of loads. Fields that a load does not set are taken from l. Only the default seeds differ, so that the loads do not have
// the same arrivals.
func (l *loadRun) decode(text []byte, url string) ([]*fileLoad, error) {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, strictyaml.Plain(err)
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(text, &list) != nil || len(list) == 0 {
		return nil, errors.New("want a list of loads, such as - {url: http://localhost:8080/, function: resnet50, rate: 40}")
	}
	var loads []*fileLoad
	var errs []error
	for i, fields := range list {
		one := &fileLoad{loadRun: *l, url: url}
		one.schedule.seed += uint64(i)
		if err := one.decode(fields); err != nil {
			errs = append(errs, fmt.Errorf("load %d: %w", i+1, err))
		}
		loads = append(loads, one)
	}
	return loads, errors.Join(errs...)
}

// decode sets the fields of the load, as if they were flags, and prepares it.
func (l *fileLoad) decode(fields map[string]json.RawMessage) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	l.addTo(flags)
	flags.StringVar(&l.url, "url", l.url, "")
	flags.StringVar(&l.function, "function", "", "")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		flag := flags.Lookup(name)
		if flag == nil {
			return fmt.Errorf("unknown field %.64q", name)
		}
		values, err := fieldValues(fields[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, isList := flag.Value.(pflag.SliceValue); !isList && len(values) != 1 {
			return fmt.Errorf("%s: want one value, not %d", name, len(values))
		}
		for _, v := range values {
			if err := flag.Value.Set(v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if l.url == "" {
		return errors.New("url: is missing, and the command has no URL for all loads")
	}
	var err error
	if l.http, err = l.prepare(l.url); err == nil && l.function != "" {
		l.http.Header.Set("Host", l.function)
	}
	return err
}

// fieldValues returns a field's value, or the values of a list, as text.
func fieldValues(text json.RawMessage) ([]string, error) {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case nil:
		return nil, errors.New("has no value")
	case map[string]any:
		return nil, errors.New("has fields, want text: put quotes around it")
	case string:
		return []string{value}, nil
	case []any:
		var all []string
		for _, v := range value {
			s, ok := v.(string)
			if !ok {
				return nil, errors.New("is a list of something else than text: put quotes around each part")
			}
			all = append(all, s)
		}
		return all, nil
	}
	return []string{string(text)}, nil
}

// runLoads sends the requests of all loads, with a progress bar on a terminal.
func runLoads(ctx context.Context, loads []*fileLoad) ([]namedResult, error) {
	seconds := 0
	for _, l := range loads {
		seconds = max(seconds, int(l.plan.Length.Seconds()))
	}
	bar := cli.NewBar("load", seconds)
	defer bar.End()
	var mu sync.Mutex // guards progress
	progress := make([]load.Progress, len(loads))
	report := func(i int, p load.Progress) {
		mu.Lock()
		defer mu.Unlock()
		progress[i] = p
		var all load.Progress
		for _, p := range progress {
			all.Elapsed = max(all.Elapsed, p.Elapsed)
			all.Sent, all.Failed, all.InFlight = all.Sent+p.Sent, all.Failed+p.Failed, all.InFlight+p.InFlight
		}
		showProgress(bar, all)
	}
	results := make([]namedResult, len(loads))
	var group errgroup.Group
	for i, l := range loads {
		group.Go(func() error {
			defer l.http.Client.CloseIdleConnections()
			r, err := load.Run(ctx, l.plan, l.http, func(p load.Progress) { report(i, p) })
			results[i] = namedResult{l.name(), l.url, r}
			return err
		})
	}
	return results, group.Wait()
}

// printLoads prints the table of loads, and below it what failed and what makes the figures doubtful.
func printLoads(w io.Writer, results []namedResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tREQUESTS\tRATE\tANSWERED\tFAILED\tP50\tP90\tP99\tMAX\tSLO\tIN TIME\tGOODPUT")
	for _, r := range results {
		slo, inTime, goodput := "-", "-", "-"
		if s := r.SLO; s != nil {
			slo, inTime, goodput = fmt.Sprintf("%v ms", s.Milliseconds), fmt.Sprintf("%.2f %%", 100*s.Ratio), fmt.Sprintf("%.1f/s", s.Goodput)
		}
		latency := "-\t-\t-\t-"
		if l := &r.Latency; r.Answered > 0 {
			latency = fmt.Sprintf("%.4g ms\t%.4g ms\t%.4g ms\t%.4g ms", l.P50, l.P90, l.P99, l.Max)
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f/s\t%d\t%d\t%s\t%s\t%s\t%s\n", r.Name, r.Scheduled, r.OfferedRate, r.Answered, r.Failed(), latency,
			slo, inTime, goodput)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		printDoubts(w, r.Name+": ", r.Result)
	}
	return nil
}
