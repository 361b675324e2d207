package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/serving"
	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const servingLong = `Serve the requests of a trace with functions on GPUs, and count the SLO violations and the GPU time. All policies get the same requests,
profiles and hardware; time is virtual.

On whole GPUs that instances share (gpus in the profiles file, shares of each function):
  eager         FaST-GShare: scales with its Algorithm 1 by the load of the last seconds; fixed shares of SMs, no shares of time
  keepalive     as INFless: scales out at once, and in after a minute
  lazy          Dilu: shares with a limit of twice the request; scales by a window of 40 s
On GPUs with MIG instances (mig, nodes of each function):
  monolithic    as ESG: a function on a slice of its own, the smallest that meets the SLO
  pipelined     FluidFaaS: functions in stages on free slices; idle functions share slices in turn
With a provider's functions, billed per call (models, model of each function):
  harmonybatch  whole functions, in the groups and batches of HarmonyBatch
  pamba         as planned by PAMBA, including partitioned functions
On a cluster with room for all (replicas of each function):
  replicas      GPUFunctions: replicas of one share that scale as spec.scaling says
On whole GPUs (turns of each function):
  turns         GPUFunctions of class swap: one server at a time runs on each GPU
On any but the last:
  gshare        all of these; what ships, replicas, for functions that have nothing else, or the first of the first three kinds in the profiles file

Figures of each run:
  slo_violation_percent  requests answered late, refused or not answered
  cold_starts            instances loaded from storage; warm_starts: from host memory
  gpu_seconds            shares: time of whole GPUs that was requested, or used beyond that; MIG: time in which any slice of a
                         GPU was busy; calls: time of executions, times their part of the GPU
  mig_seconds            busy time, summed over MIG instances
  cost                   in the currency of the prices
  p50_ms, p95_ms, p99_ms latency of answered requests
  queue_ms, load_ms, transfer_ms, execution_ms
                         MIG: means of the parts of the latency. Loads are those to slices that functions share in turn. Requests that
                         wait for an instance to start are queued.
  used_gpu_seconds       shares: part of gpu_seconds in which SMs were busy; memory_gb_seconds: device memory in use
  requests, refused, completed_per_second (before the trace ended)`

// servingSimulation holds the flags and inputs of gshare-lab simulate serving, which serves a trace of requests.
type servingSimulation struct {
	trace, profiles, data string
	use                   string
	geometry              string
	gpus                  int
	scale                 float64
	step, duration        time.Duration

	first  func() uint64 // returns the first seed
	spec   serving.Spec
	series []arrival.Series
	inputs map[uint64]*serving.Input // by seed; all policies get the same
}

func simulateServing() *simulation {
	s := &servingSimulation{inputs: map[uint64]*serving.Input{}}
	var policies []string
	for _, p := range serving.Policies() {
		policies = append(policies, p.Name)
	}
	run := &simulation{
		name: "serving", short: "Serve the requests of a trace, and count SLO violations and GPU time", long: servingLong,
		example: "  gshare-lab simulate serving --trace bursty.txt --profiles scaling.yaml --policy gshare,lazy,eager,keepalive --seed 1 -o json\n" +
			"  gshare-lab simulate serving --trace conv.csv --profiles light.yaml --geometry p1 --policy gshare,pipelined,monolithic --duration 20m",
		policies: policies, flags: s.flags, prepare: s.prepare, run: s.run, chart: s.chart,
	}
	s.first = func() uint64 { return run.seed }
	return run
}

func (s *servingSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&s.trace, "trace", "", "trace of requests: one number per line (requests per second), or a CSV file of Azure's traces (required)")
	f.StringVar(&s.profiles, "profiles", "", "YAML or JSON file of hardware, prices, and functions with their profiles (required)")
	f.StringVar(&s.data, "data", "", "directory of the tables that the profiles file refers to (default: the directory of the profiles file)")
	f.StringVar(&s.geometry, "geometry", "", "MIG geometry of the GPUs: one of mig.geometries in the profiles file")
	f.StringVar(&s.use, "use", "", "also write the MIG compute slices that are occupied and busy in each second to this CSV file")
	f.IntVar(&s.gpus, "gpus", 0, "number of whole GPUs (default: gpus in the profiles file)")
	f.Float64Var(&s.scale, "scale", 1, "requests to send for each request of the trace")
	f.DurationVar(&s.step, "step", 0, "interval of the rates, for traces with few requests (default: the interval of the trace)")
	f.DurationVar(&s.duration, "duration", 0, "part of the trace to play (default: all)")
}

func (s *servingSimulation) prepare() error {
	switch {
	case s.trace == "":
		return errors.New("--trace is required")
	case s.profiles == "":
		return errors.New("--profiles is required")
	case s.gpus < 0 || s.gpus > 1024:
		return fmt.Errorf("--gpus: %d is outside 0 to 1024", s.gpus)
	case !(s.scale > 0 && s.scale <= 1e6):
		return fmt.Errorf("--scale: %v is not above 0 and at most 1e6", s.scale)
	case s.step < 0 || s.step > time.Hour:
		return fmt.Errorf("--step: %v is outside 0 to 1h", s.step)
	case s.duration < 0 || s.duration > 24*time.Hour:
		return fmt.Errorf("--duration: %v is outside 0 to 24h", s.duration)
	}
	text, err := dataset.ReadFile(s.trace)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	if s.series, err = arrival.Read(string(text)); err != nil {
		return fmt.Errorf("%s: %w", s.trace, err)
	}
	if text, err = dataset.ReadFile(s.profiles); err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	s.spec.Platform = planning.DefaultPlatform()
	if err := strictyaml.Unmarshal(text, &s.spec); err != nil {
		return fmt.Errorf("%s: %w", s.profiles, err)
	}
	if s.gpus != 0 {
		s.spec.GPUs = s.gpus
	}
	if s.data == "" {
		s.data = filepath.Dir(s.profiles)
	}
	if s.use != "" {
		if err := os.WriteFile(s.use, []byte("policy,seed,second,total,occupied,active\n"), 0o666); err != nil {
			return fmt.Errorf("--use: %w", err)
		}
	}
	_, err = s.requestsOf(s.first())
	return err
}

// runOne runs a simulation, and appends the use of the GPUs in each second to the file of --use.
func (s *servingSimulation) runOne(ctx context.Context, in *serving.Input, policy string, seed uint64) (serving.Result, error) {
	if s.use == "" {
		return serving.Run(ctx, in, policy)
	}
	var rows bytes.Buffer
	watched := *in
	watched.Used = func(at time.Duration, u serving.MIGUse) {
		fmt.Fprintf(&rows, "%s,%d,%.0f,%d,%d,%.3f\n", policy, seed, at.Seconds(), u.Total, u.Occupied, u.Active)
	}
	r, err := serving.Run(ctx, &watched, policy)
	if err != nil {
		return r, err
	}
	file, err := os.OpenFile(s.use, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return r, fmt.Errorf("--use: %w", err)
	}
	_, err = file.Write(rows.Bytes())
	return r, errors.Join(err, file.Close())
}

// requestsOf returns the requests that a random seed generates. They are drawn once, so that all policies serve the same requests.
func (s *servingSimulation) requestsOf(seed uint64) (*serving.Input, error) {
	if in := s.inputs[seed]; in != nil {
		return in, nil
	}
	in, err := s.spec.Build(serving.Replay{Series: s.series, Scale: s.scale, Until: s.duration, Seed: seed, Geometry: s.geometry, Step: s.step}, s.table)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.profiles, err)
	}
	s.inputs[seed] = in
	return in, nil
}

func (s *servingSimulation) table(name string) (string, error) {
	if !strings.HasPrefix(name, dataset.Prefix) {
		name = filepath.Join(s.data, name)
	}
	text, err := dataset.ReadFile(name)
	return string(text), err
}

func (s *servingSimulation) run(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	in, err := s.requestsOf(seed)
	if err != nil {
		return nil, err
	}
	r, err := s.runOne(ctx, in, policy, seed)
	if field := (*share.FieldError)(nil); errors.As(err, &field) {
		return nil, cli.Usage(fmt.Errorf("%s: %w", s.profiles, err))
	}
	if err != nil {
		return nil, err
	}
	return []report.Figure{
		{Name: "slo_violation_percent", Value: r.ViolationPercent(), Digits: 2},
		{Name: "cold_starts", Value: float64(r.ColdStarts)},
		{Name: "gpu_seconds", Value: r.GPUSeconds},
		{Name: "mig_seconds", Value: r.MIGSeconds},
		{Name: "cost", Value: r.Cost, Digits: 4},
		{Name: "p50_ms", Value: float64(r.P50) / 1e6, Digits: 1},
		{Name: "p95_ms", Value: float64(r.P95) / 1e6, Digits: 1},
		{Name: "p99_ms", Value: float64(r.P99) / 1e6, Digits: 1},
		{Name: "queue_ms", Value: float64(r.Mean.Queue) / 1e6, Digits: 1},
		{Name: "load_ms", Value: float64(r.Mean.Load) / 1e6, Digits: 1},
		{Name: "transfer_ms", Value: float64(r.Mean.Transfer) / 1e6, Digits: 1},
		{Name: "execution_ms", Value: float64(r.Mean.Execution) / 1e6, Digits: 1},
		{Name: "requests", Value: float64(r.Requests)},
		{Name: "warm_starts", Value: float64(r.WarmStarts)},
		{Name: "used_gpu_seconds", Value: r.UsedSeconds},
		{Name: "memory_gb_seconds", Value: r.MemorySeconds},
		{Name: "refused", Value: float64(r.Refused)},
		{Name: "completed_per_second", Value: float64(r.Completed) / in.Until.Seconds(), Digits: 2},
	}, nil
}

// chart returns a bar for each policy with its percentage of SLO violations, labelled with the GPU time that it used.
func (s *servingSimulation) chart(summaries []report.Summary) *chart.Chart {
	c := &chart.Chart{Title: "SLO violations, " + filepath.Base(s.profiles), Y: "percent of the requests"}
	for _, x := range summaries {
		bar := chart.Bar{Name: fmt.Sprintf("%s\n%.0f GPU-s", x.Policy, x.Value("gpu_seconds")), Value: x.Value("slo_violation_percent")}
		for _, f := range x.StdDev() {
			if f.Name == "slo_violation_percent" {
				bar.Dev = f.Value
			}
		}
		c.Bars = append(c.Bars, bar)
	}
	return c
}
