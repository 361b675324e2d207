package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/serving/profiler"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const profileLong = `Measure how large a share of a GPU a server needs, and what it does with it.

profile starts the server alone on a GPU of this machine, with shares of different size one after the other, and sends it requests: one
after the other, for the time of a batch, and then at random times, for the highest rate at which 99 % are answered within the objective.
It prints these for each share, and the share that costs the least SM-time for a request, as lines for the GPUFunction.

FILE has a GPUFunction, as for gshare serve; share and requestsPerSecond may be missing. A program after -- needs --slo. With protocol OIP, requests
are made from the metadata of the model, and batches are tried as well; other servers get GET /, or what --path, --data and --header say.

The shares are those of hybrid growth: SMs grow until a batch takes half of the objective, then the batch doubles. --grid tries 35 shares of
SMs and time. What was measured is saved after each trial in the file --state. The same command goes on from there, and shows the result again
if nothing is missing.`

// profileRun holds the flags of gshare profile.
type profileRun struct {
	format       output.Format
	name         string
	command      commandFlags
	request      requestFlags
	path         string
	grid         bool
	step         int64
	maxBatch     int
	maxTrials    int
	maxTime      time.Duration
	state, plot  string
	hook, socket string
}

// commandFlags describe a program that is profiled without a file.
type commandFlags struct {
	slo                     time.Duration
	protocol, ready, memory string
}

func profileCommand() *cobra.Command {
	p := &profileRun{}
	cmd := &cobra.Command{
		Use: "profile FILE | profile --slo LATENCY [flags] -- PROGRAM [ARGUMENTS]", Short: "Measure how large a share of a GPU a server needs", Long: profileLong,
		Example: "  gshare profile functions.yaml --name resnet50\n" +
			"  gshare profile --slo 69ms --protocol OIP --name resnet50 -- gshare-model --name resnet50 --batch 1=3ms --batch 8=12ms\n" +
			"  gshare profile functions.yaml --name bert --grid --max-time 20m --plot bert.svg -o json",
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
	}
	p.format.AddTo(cmd)
	f := cmd.Flags()
	f.StringVar(&p.name, "name", "", "function of FILE to profile, if there are several; name of the function for a program")
	f.DurationVar(&p.command.slo, "slo", 0, "time within which a request is to be answered, for a program")
	f.StringVar(&p.command.protocol, "protocol", string(api.HTTP), "protocol of a program: HTTP, OIP or OpenAI")
	f.StringVar(&p.command.ready, "ready", "", "path of which a GET succeeds once a program is ready (default: it accepts connections)")
	f.StringVar(&p.command.memory, "mem", "", "device memory of a program, such as 8Gi (default: all of the GPU)")
	f.StringVar(&p.path, "path", "", "path of the requests (default /, with OIP /v2/models/NAME/infer)")
	f.StringVarP(&p.request.method, "method", "X", "", "HTTP method (default POST with --data, else GET)")
	f.StringArrayVarP(&p.request.headers, "header", "H", nil, "header of the requests, such as Content-Type:text/plain; may be repeated")
	f.StringVar(&p.request.data, "data", "", "body of the requests, or @FILE; with OIP of one row (default: zeros)")
	f.BoolVar(&p.request.stream, "stream", false, "read answers as server-sent events, of which the first is to come within the objective")
	f.BoolVar(&p.grid, "grid", false, "try 5 quotas with 7 SM shares, instead of hybrid growth")
	f.Int64Var(&p.step, "step", 10, "percent of the SMs by which shares grow")
	f.IntVar(&p.maxBatch, "max-batch", 0, "largest batch to try (default: that of the function, or 32 with OIP)")
	f.IntVar(&p.maxTrials, "max-trials", 0, "most trials (default: as many as the search needs)")
	f.DurationVar(&p.maxTime, "max-time", 0, "time after which no trial begins (default: none)")
	f.StringVar(&p.state, "state", "", "file of what was measured (default NAME.profile.json)")
	f.StringVar(&p.plot, "plot", "", "write the rates over the SMs to this .svg or .png file")
	f.StringVar(&p.hook, "hook", "", "path of libgshare.so (default: next to gshare)")
	f.StringVar(&p.socket, "socket", "", "control socket of the agent (default: that of your own agent, else of the machine's)")
	return cmd
}

// run measures what is missing and prints the result.
func (p *profileRun) run(cmd *cobra.Command, args []string) error {
	if p.plot != "" && !chart.Known(p.plot) {
		return cli.Usagef("--plot %s: want a file that ends in .svg or .png", p.plot)
	}
	text, err := p.source(cmd, args)
	if err != nil {
		return cli.Usage(err)
	}
	starter, err := (&serveRun{hook: p.hook, socket: p.socket}).starter(cmd.Context())
	if err != nil {
		return err
	}
	m, err := newProfiledMachine(cmd.Context(), starter, p.socket)
	if err != nil {
		return err
	}
	f, err := p.function(text, m)
	if err != nil {
		return cli.Usage(err)
	}
	plan, err := p.plan(f, m)
	if err != nil {
		return cli.Usage(err)
	}
	record, err := plan.record.Load(plan.state)
	if err != nil {
		return err
	}
	if err := plan.measure(cmd, m, record); err != nil {
		return err
	}
	return p.write(cmd, f, plan, record)
}

// source returns the text of the functions: FILE, or one that describes the program after --.
func (p *profileRun) source(cmd *cobra.Command, args []string) ([]byte, error) {
	if cmd.ArgsLenAtDash() < 0 {
		if len(args) != 1 {
			return nil, fmt.Errorf("accepts 1 file, or a program after --; got %d arguments", len(args))
		}
		for _, flag := range []string{"slo", "protocol", "ready", "mem"} {
			if cmd.Flags().Changed(flag) {
				return nil, fmt.Errorf("--%s describes a program after --; a file says it itself", flag)
			}
		}
		return readSource(args[0])
	}
	if cmd.ArgsLenAtDash() > 0 || len(args) == 0 {
		return nil, errors.New("want one program after --, and no file")
	}
	return p.command.describe(p.name, args)
}

// function returns the function to profile.
func (p *profileRun) function(text []byte, m *profiledMachine) (*api.GPUFunction, error) {
	functions, err := api.DecodeUnmeasured(text, api.Quantity(fmt.Sprintf("%dMi", m.device.Memory/share.MiB)))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range functions {
		if p.name == f.Name || p.name == "" && len(functions) == 1 {
			return f, findProgram(f)
		}
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("--name %q: want one of %s", p.name, strings.Join(names, ", "))
}

// profilePlan is what a profile measures, and how.
type profilePlan struct {
	state    string
	config   profiler.Config
	record   profiler.Record // without trials
	function *api.GPUFunction
	request  profiler.Request
}

// objective is the part of the requests that are to be answered within the SLO, as it is for gshare serve.
const objective = 0.99

func (p *profileRun) plan(f *api.GPUFunction, m *profiledMachine) (*profilePlan, error) {
	slo := f.Spec.SLO.Latency.Value()
	oip := f.Spec.Protocol == api.OIP
	batch := p.maxBatch
	switch {
	case batch == 0 && oip && f.Spec.Batching.MaxBatch == 1 && !p.grid:
		batch = 32
	case batch == 0:
		batch = f.Spec.Batching.MaxBatch
	case batch > 1 && !oip:
		return nil, errors.New("--max-batch: more than 1 needs protocol OIP")
	}
	request, err := p.buildRequest(f)
	if err != nil {
		return nil, err
	}
	plan := &profilePlan{state: p.state, function: f, request: request, config: profiler.Config{MaxTrials: p.maxTrials, MaxTime: p.maxTime}}
	if plan.state == "" {
		plan.state = f.Name + ".profile.json"
	}
	plan.config.Load = profiler.Load{SLO: slo, Objective: objective, Bound: slo / 2, Concurrency: *f.Spec.Scaling.Concurrency, Seed: 1}
	plan.record = profiler.Record{Model: f.Name, Plan: profiler.Plan{
		SLO: profile.Seconds(slo.Seconds()), Strategy: "growth", Step: share.PerMille(10 * p.step), MaxBatch: batch,
		Concurrency: *f.Spec.Scaling.Concurrency, Memory: f.Share().Memory, Request: digest(request),
	}}
	plan.config.Strategy = search.Growth{SLO: slo, Step: plan.record.Plan.Step, MaxBatch: batch, Device: m.device.Model}
	if p.grid {
		plan.record.Plan.Strategy, plan.record.Plan.Step = "grid", 0
		plan.config.Strategy, plan.config.Load.Bound = search.FaSTGrid(m.device.Model, batch), slo
	}
	if _, _, err := plan.config.Strategy.Next(nil); err != nil {
		return nil, err
	}
	plan.record.Fingerprint, err = m.fingerprint(f)
	return plan, err
}

func (p *profileRun) buildRequest(f *api.GPUFunction) (profiler.Request, error) {
	h, err := p.request.build("http://server/") // the address is known once the server has started
	if err != nil {
		return profiler.Request{}, err
	}
	r := profiler.Request{Method: h.Method, Path: p.path, Header: h.Header, Body: h.Body, Stream: h.Stream, OIP: f.Spec.Protocol == api.OIP}
	if p.request.method == "" {
		r.Method = "" // as the protocol has it
	}
	if err := r.SetDefaults(f.Name); err != nil {
		return r, fmt.Errorf("--%w", err)
	}
	return r, nil
}

// measure measures what the record lacks. It returns nil also if the budget is used up.
func (p *profilePlan) measure(cmd *cobra.Command, m *profiledMachine, record *profiler.Record) error {
	if record.Complete {
		fmt.Fprintf(cmd.ErrOrStderr(), "gshare: %s has this profile; remove it to measure again\n", p.state)
		return nil
	}
	if len(record.Trials) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "gshare: continuing %s after %d trials\n", p.state, len(record.Trials))
	}
	console := cli.NewConsole()
	p.config.Target = m.target(p.function, p.request, console)
	p.config.Save = func(r *profiler.Record) error { return r.Save(p.state) }
	p.config.Begin = func(s search.Setting, again bool) {
		if again {
			console.Step("measuring the best again, for longer: %s", settingText(s.Resource, s.Batch))
		}
	}
	p.config.Report = func(t profiler.Trial) {
		console.Step("%s: %s", settingText(t.Point.Resource, t.Point.Batch), outcome(t))
	}
	ctx := cmd.Context()
	switch err := profiler.Run(ctx, p.config, record); {
	case ctx.Err() != nil:
		return cli.WithExitCode(130, fmt.Errorf("stopped after %d trials; the same command goes on with %s", len(record.Trials), p.state))
	case errors.Is(err, profiler.ErrBudget):
		fmt.Fprintf(cmd.ErrOrStderr(), "gshare: the budget is used up after %d trials; more of it goes on with %s\n", len(record.Trials), p.state)
		return nil
	default:
		return err
	}
}

func settingText(r profile.Resource, batch int) string {
	return fmt.Sprintf("sm %s, quota %s, batch %d", r.SM.Percent(), r.Quota.Percent(), batch)
}

// outcome returns what a trial has found, in a line.
func outcome(t profiler.Trial) string {
	switch {
	case t.Failed != "":
		return "does not run: " + t.Failed
	case t.Point.Throughput > 0:
		return fmt.Sprintf("%s a batch, %.4g/s within the objective, p99 %.4g ms%s", roundTime(t.Point.Mean), t.Point.Throughput, t.P99, lateText(t))
	case len(t.Steps) == 0:
		return roundTime(t.Point.Mean) + " a batch, too long for the objective"
	}
	return roundTime(t.Point.Mean) + " a batch, no rate within the objective" + lateText(t)
}

func lateText(t profiler.Trial) string {
	if t.ClientLate {
		return " (at least: this client was too slow to tell)"
	}
	return ""
}

func roundTime(d time.Duration) string {
	return fmt.Sprintf("%.4g ms", float64(d)/float64(time.Millisecond))
}

// profileResult is the JSON form of a profile: its record, what latency models and gshare-model --points read, and the choice.
type profileResult struct {
	*profiler.Record
	Points      []profile.Point `json:"points"`
	Recommended *recommendation `json:"recommended,omitempty"` // missing if no share meets the objective
}

// recommendation has what goes into a GPUFunction.
type recommendation struct {
	SM                int     `json:"sm"`
	Quota             int     `json:"quota"`
	Memory            string  `json:"memory"`
	MaxBatch          int     `json:"maxBatch"`
	RequestsPerSecond float64 `json:"requestsPerSecond"`
}

// recommend returns the recommendation of a record, or nil.
func recommend(r *profiler.Record) *recommendation {
	best, err := r.Recommend()
	if err != nil {
		return nil
	}
	return &recommendation{
		SM: int(best.Resource.SM / 10), Quota: int(best.Resource.Quota / 10), Memory: fmt.Sprintf("%dMi", best.Memory/share.MiB),
		MaxBatch: best.Batch, RequestsPerSecond: best.Rate,
	}
}

// write prints the result and draws the plot.
func (p *profileRun) write(cmd *cobra.Command, f *api.GPUFunction, plan *profilePlan, r *profiler.Record) error {
	result := profileResult{r, r.Points(), recommend(r)}
	if p.plot != "" {
		if err := profileChart(r).WriteFile(p.plot); err != nil {
			return err
		}
	}
	if err := p.format.Write(cmd.OutOrStdout(), result, func(w io.Writer) error { return writeProfile(w, f, &result) }); err != nil {
		return err
	}
	if result.Recommended == nil && r.Complete {
		return fmt.Errorf("no share answers requests within %v: %w", plan.config.Load.SLO, search.ErrNoSetting)
	}
	return nil
}

func writeProfile(w io.Writer, f *api.GPUFunction, r *profileResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SM\tQUOTA\tBATCH\tTIME OF BATCH\tRATE IN SLO\tP50\tP99\tSM-TIME A REQUEST\tNOTE")
	best, _ := r.Best()
	for _, trial := range r.Trials {
		p := trial.Point
		row := []string{"-", "-", "-", "-", "-"}
		if trial.Failed == "" {
			row[0] = roundTime(p.Mean)
		}
		if p.Throughput > 0 {
			row = []string{row[0], fmt.Sprintf("%.4g/s", p.Throughput), fmt.Sprintf("%.4g ms", trial.P50), fmt.Sprintf("%.4g ms", trial.P99),
				fmt.Sprintf("%.3g ms", 1000*trial.SMTime())}
		}
		note := trial.Failed
		switch {
		case trial.SMTime() > 0 && trial.ClientLate && p.Resource == best.Point.Resource && p.Batch == best.Point.Batch:
			note = "recommended, client late"
		case trial.SMTime() > 0 && p.Resource == best.Point.Resource && p.Batch == best.Point.Batch:
			note = "recommended"
		case trial.ClientLate:
			note = "client late"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", p.Resource.SM.Percent(), p.Resource.Quota.Percent(), p.Batch, strings.Join(row, "\t"), note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d trials have used a GPU for %.0f s.\n", len(r.Trials), r.GPUSeconds)
	if best.ClientLate {
		fmt.Fprintln(w, "warning: this machine was too busy to tell how much the best share does; its rate is a guess. Measure again when it is quiet.")
	}
	if c := r.Recommended; c != nil {
		fmt.Fprintf(w, "Write under spec of %s, for 99 %% within %v:\n\n  resources: {share: {sm: %d, quota: %d, memory: %s}}\n  scaling: {requestsPerSecond: %v}\n",
			f.Name, f.Spec.SLO.Latency.Value(), c.SM, c.Quota, c.Memory, c.RequestsPerSecond)
		if f.Spec.Protocol == api.OIP {
			fmt.Fprintf(w, "  batching: {maxBatch: %d}\n", c.MaxBatch)
		}
	}
	return nil
}

// profileChart draws the rates over the SMs, with a line for each batch and quota.
func profileChart(r *profiler.Record) *chart.Chart {
	c := &chart.Chart{Title: fmt.Sprintf("Requests to %s within %v s", r.Model, r.Plan.SLO), X: "SMs, percent", Y: "requests per second"}
	lines := map[string]int{}
	for sm := share.PerMille(1); sm <= share.Whole; sm++ { // points are sorted by SMs
		for _, t := range r.Trials {
			if t.Point.Resource.SM != sm || t.Failed != "" {
				continue
			}
			name := fmt.Sprintf("batch %d, quota %s", t.Point.Batch, t.Point.Resource.Quota.Percent())
			if _, ok := lines[name]; !ok {
				lines[name] = len(c.Lines)
				c.Lines = append(c.Lines, chart.Line{Name: name})
			}
			line := &c.Lines[lines[name]]
			line.Points = append(line.Points, chart.Point{X: float64(sm) / 10, Y: t.Point.Throughput})
		}
	}
	return c
}
