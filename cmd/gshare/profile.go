//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const profileLong = `Measure how large a share of a GPU a server needs, and what it achieves with that share.

profile starts the server alone on a GPU of this machine, with shares of different sizes one after the other. On each share it sends
requests one by one to measure the time of a batch. It then sends them at random times to find the highest rate at which 99 % are answered
within the objective. It prints both for each share. It also prints the share that costs the least SM-time per request, as lines for the
GPUFunction.

FILE contains a GPUFunction, as for gshare serve; share and requestsPerSecond are optional. A server given after -- needs --slo. With
protocol OIP, profile builds requests from the metadata of the model, and also tries batches. Other servers receive GET /, or the request
that --path, --data and --header describe.

--strategy selects the shares to try:
  growth     add SMs until a batch takes at most half of the objective, then double the batch
  bisection  find the fewest SMs with 80 % of the throughput on all SMs, and the fewest with all of it
  grid       try 35 shares of SMs and time

A program given after -- without --slo answers no requests, for example a training job. With --strategy bisection, profile measures how
many kernels it launches per second. The program must run for longer than a trial.

profile saves its measurements in the --state file after each trial. Run the same command again to continue from there, or to show the
result again if nothing is missing.`

// profileRun holds the flags of gshare profile.
type profileRun struct {
	format       output.Format
	name         string
	command      commandFlags
	request      requestFlags
	path         string
	search       searchFlags
	maxTrials    int
	maxTime      time.Duration
	state, plot  string
	hook, socket string
}

// searchFlags say which shares are tried, and how.
type searchFlags struct {
	strategy string
	grid     bool
	step     int64
	maxBatch int
	length   time.Duration // time over which the kernel rate of a training job must be steady
}

// commandFlags describe a program that is profiled without a file of functions.
type commandFlags struct {
	slo                     time.Duration // 0 if the program answers no requests
	protocol, ready, memory string
	training                bool // the program is a training job and answers no requests
}

var _ = onMachine.add(profileCommand)

func profileCommand() *cobra.Command {
	p := &profileRun{}
	cmd := &cobra.Command{
		Use: "profile FILE | profile --slo LATENCY [flags] -- PROGRAM [ARGUMENTS] | profile --strategy bisection [flags] -- PROGRAM [ARGUMENTS]", Short: "Measure how large a share of a GPU a server needs", Long: profileLong,
		Example: "  gshare profile functions.yaml --name resnet50\n" +
			"  gshare profile --slo 69ms --protocol OIP --name resnet50 -- gshare-model --name resnet50 --batch 1=3ms --batch 8=12ms\n" +
			"  gshare profile functions.yaml --name bert --strategy grid --max-time 20m --plot bert.svg -o json\n" +
			"  gshare profile --strategy bisection --step 5 --mem 8Gi -- python train.py",
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
	}
	p.format.AddTo(cmd)
	f := cmd.Flags()
	f.StringVar(&p.name, "name", "", "function to profile if FILE contains several; for a program, the name to give to its function")
	f.DurationVar(&p.command.slo, "slo", 0, "latency objective of a request to a program")
	f.StringVar(&p.command.protocol, "protocol", string(api.HTTP), "protocol of a program: HTTP, OIP or OpenAI")
	f.StringVar(&p.command.ready, "ready", "", "path on which GET succeeds once a program is ready (default: it is ready when it accepts connections)")
	f.StringVar(&p.command.memory, "mem", "", "device memory of a program, such as 8Gi (default: all memory of the GPU)")
	f.StringVar(&p.path, "path", "", "path of the requests (default: /, or /v2/models/NAME/infer with OIP)")
	f.StringVarP(&p.request.method, "method", "X", "", "HTTP method (default POST with --data, else GET)")
	f.StringArrayVarP(&p.request.headers, "header", "H", nil, "header of the requests, such as Content-Type:text/plain; can be repeated")
	f.StringVar(&p.request.data, "data", "", "body of the requests, or @FILE to read it from a file; with OIP, a request of one row (default: zeros)")
	f.BoolVar(&p.request.stream, "stream", false, "read responses as server-sent events; the objective applies to the first event")
	f.StringVar(&p.search.strategy, "strategy", growth, "shares to try: growth, bisection or grid")
	f.BoolVar(&p.search.grid, "grid", false, "same as --strategy grid")
	f.Int64Var(&p.search.step, "step", 10, "step in percent of the SMs: growth adds this many, bisection finds a multiple of it")
	f.DurationVar(&p.search.length, "steady", 15*time.Second, "time for which the kernel rate of a program without --slo must be steady")
	f.IntVar(&p.search.maxBatch, "max-batch", 0, "largest batch to try (default: the largest batch of the function, or 32 with OIP and growth)")
	f.IntVar(&p.maxTrials, "max-trials", 0, "maximum number of trials (default: as many as the search needs)")
	f.DurationVar(&p.maxTime, "max-time", 0, "time after which no new trial begins (default: no limit)")
	f.StringVar(&p.state, "state", "", "file of the measurements (default: NAME.profile.json)")
	f.StringVar(&p.plot, "plot", "", "write a chart of the rates by SMs to this .svg or .png file")
	f.StringVar(&p.hook, "hook", "", "path of libgshare.so (default: next to gshare)")
	addSocket(f, &p.socket)
	return cmd
}

// run measures what is missing and prints the result.
func (p *profileRun) run(cmd *cobra.Command, args []string) error {
	if err := chart.Check(p.plot); err != nil {
		return cli.Usagef("--plot: %w", err)
	}
	if p.state != "" {
		if err := output.CheckFile(p.state); err != nil {
			return cli.Usagef("--state: %w", err)
		}
	}
	if err := p.checkStrategy(cmd); err != nil {
		return cli.Usage(err)
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

func (p *profileRun) checkStrategy(cmd *cobra.Command) error {
	if p.search.grid {
		if cmd.Flags().Changed("strategy") && p.search.strategy != grid {
			return fmt.Errorf("--grid and --strategy %s exclude each other", p.search.strategy)
		}
		p.search.strategy = grid
	}
	switch {
	case !slices.Contains([]string{growth, bisection, grid}, p.search.strategy):
		return fmt.Errorf("--strategy %q: want growth, bisection or grid", p.search.strategy)
	case p.search.step < 1 || p.search.step > 100 || p.search.strategy == bisection && 100%p.search.step != 0:
		want := "1 to 100"
		if p.search.strategy == bisection {
			want = "a percentage that divides 100"
		}
		return fmt.Errorf("--step %d: want %s", p.search.step, want)
	case p.maxTrials < 0 || p.search.maxBatch < 0 || p.maxTime < 0:
		return fmt.Errorf("--max-trials %d, --max-batch %d, --max-time %v: none may be negative", p.maxTrials, p.search.maxBatch, p.maxTime)
	case p.search.length < time.Second || p.search.length > time.Hour:
		return fmt.Errorf("--steady %v: want 1s to 1h", p.search.length)
	}
	return nil
}

// source returns the text of a file of functions: the content of FILE, or a description of the program after --.
func (p *profileRun) source(cmd *cobra.Command, args []string) ([]byte, error) {
	if cmd.ArgsLenAtDash() < 0 {
		if len(args) != 1 {
			return nil, fmt.Errorf("accepts 1 file, or a program after --; got %d arguments", len(args))
		}
		for _, flag := range []string{"slo", "protocol", "ready", "mem", "steady"} {
			if cmd.Flags().Changed(flag) {
				return nil, fmt.Errorf("--%s describes a program after --; a file says it itself", flag)
			}
		}
		return readSource(args[0])
	}
	if cmd.ArgsLenAtDash() > 0 || len(args) == 0 {
		return nil, errors.New("want one program after --, and no file")
	}
	if p.command.slo == 0 && p.search.strategy == bisection {
		p.command.training = true
	}
	if !p.command.training && cmd.Flags().Changed("steady") {
		return nil, errors.New("--steady is of programs without --slo; others are measured by their requests")
	}
	for _, flag := range []string{"path", "method", "header", "data", "stream", "ready", "protocol", "max-batch"} {
		if p.command.training && cmd.Flags().Changed(flag) {
			return nil, fmt.Errorf("--%s is of a program that answers requests, and needs --slo, within which it is to do so", flag)
		}
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
	record   profiler.Record // of the profile to be made, before any trial
	function *api.GPUFunction
	request  profiler.Request
	training bool // the program answers no requests
}

// objective is the fraction of the requests that must be answered within the SLO, as for gshare serve.
const objective = 0.99

func (p *profileRun) plan(f *api.GPUFunction, m *profiledMachine) (*profilePlan, error) {
	slo := f.Spec.SLO.Latency.Value()
	oip := f.Spec.Protocol == api.OIP
	batch := p.search.maxBatch
	switch {
	case batch == 0 && oip && f.Spec.Batching.MaxBatch == 1 && p.search.strategy == growth:
		batch = 32
	case batch == 0:
		batch = f.Spec.Batching.MaxBatch
	case batch > 1 && !oip:
		return nil, errors.New("--max-batch: more than 1 needs protocol OIP")
	}
	if f.GPUs() > 1 {
		return nil, fmt.Errorf("spec.resources.share.gpus: %d, and only shares of one GPU are measured", f.GPUs())
	}
	request, err := p.buildRequest(f)
	if err != nil {
		return nil, err
	}
	plan := &profilePlan{state: p.state, function: f, request: request, training: p.command.training, config: profiler.Config{MaxTrials: p.maxTrials, MaxTime: p.maxTime}}
	if plan.state == "" {
		plan.state = f.Name + ".profile.json"
	}
	plan.config.Load = profiler.Load{SLO: slo, Objective: objective, Bound: slo / 2, Concurrency: *f.Spec.Scaling.Concurrency, Seed: 1}
	plan.record = profiler.Record{Model: f.Name, Plan: profiler.Plan{
		SLO: profile.Seconds(slo.Seconds()), Strategy: p.search.strategy, Step: share.PerMille(10 * p.search.step), MaxBatch: batch,
		Concurrency: *f.Spec.Scaling.Concurrency, Memory: f.Share().Memory, Request: digest(request),
	}}
	if p.search.strategy == grid {
		plan.record.Plan.Step = 0
	}
	if p.search.strategy != growth {
		plan.config.Load.Bound = slo
	}
	plan.config.Strategy = strategyOf(&plan.record.Plan, slo, m.device.Model)
	if plan.training {
		plan.config.Progress = &profiler.Progress{Length: p.search.length}
		plan.record.Plan.SLO, plan.record.Plan.Progress, plan.record.Plan.Request = 0, profile.Seconds(p.search.length.Seconds()), ""
	}
	if _, _, err := plan.config.Strategy.Next(nil); err != nil {
		return nil, err
	}
	plan.record.Fingerprint, err = m.fingerprint(f)
	return plan, err
}

// buildRequest returns the request that the flags describe or, if none of them is set, that of the function.
func (p *profileRun) buildRequest(f *api.GPUFunction) (profiler.Request, error) {
	if own := f.Spec.Request; own != nil && p.path == "" && p.request.isZero() {
		return profiler.RequestOf(own, f, "")
	}
	h, err := p.request.build("http://server/") // only a placeholder: the address is known once the server has started
	if err != nil {
		return profiler.Request{}, err
	}
	r := profiler.Request{Method: h.Method, Path: p.path, Header: h.Header, Body: h.Body, Stream: h.Stream, OIP: f.Spec.Protocol == api.OIP}
	if p.request.method == "" {
		r.Method = "" // the default of the protocol
	}
	if err := r.SetDefaults(f.Name); err != nil {
		return r, fmt.Errorf("--%w", err)
	}
	return r, nil
}

// measure runs the trials that the record lacks. It returns nil even if the budget is used up before the end.
func (p *profilePlan) measure(cmd *cobra.Command, m *profiledMachine, record *profiler.Record) error {
	if record.Complete {
		fmt.Fprintf(cmd.ErrOrStderr(), "gshare: %s has this profile; remove it to measure again\n", p.state)
		return nil
	}
	if len(record.Trials) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "gshare: continuing %s after %d trials\n", p.state, len(record.Trials))
	}
	console := cli.NewConsole()
	p.config.Target = m.target(p.function, p.request, p.training, console)
	p.config.Save = func(r *profiler.Record) error { return r.Save(p.state) }
	p.config.Begin = func(s search.Setting, again bool) {
		if again {
			console.Step("measuring the best again, for longer: %s", settingText(s.Resource, s.Batch))
		}
	}
	p.config.Report = func(t profiler.Trial) {
		if p.training && t.Failed != "" {
			console.Step("sm %s: %s", t.Point.Resource.SM.Percent(), t.Failed)
			return
		} else if p.training {
			console.Step("sm %s: %.4g kernels/s ±%.1f %%", t.Point.Resource.SM.Percent(), t.Point.Throughput, 100*t.Confidence)
			return
		}
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
