package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	simulator "github.com/gshare-dev/gshare/lab/serving"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	client "github.com/gshare-dev/gshare/serving/load"
	traffic "github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/test/published"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// FaST-GShare's profile of ResNet on a V100 with 12 % of the SMs: 35.1 requests per second with 40 % of the time. A request thus takes 11.4 ms at full
// quota, and gshare-model, whose kernels are all that takes time, is configured with that. The objective is the one that the paper uses for
// auto-scaling.
const (
	resnetSM, resnetQuota = 12, 40
	resnetRate            = 35.1
	resnetSLO             = 69 * time.Millisecond
	resnetWork            = 11400 * time.Microsecond
)

// scaled is a function that scales in a certain way. All have the same model and the same share, except for its limit.
type scaled struct {
	name             string
	quotaLimit       int64 // percent of the time
	window, out, in  int   // window in seconds; votes in it to scale out and in
	keepShared       time.Duration
	minimum, maximum int
}

// tracePlay is a load that is played to several functions at the same time.
type tracePlay struct {
	name     string
	series   traffic.Series
	scale    float64 // requests for each request of the series
	dilation int     // factor by which requests take longer than in the profile, and may take longer
	ways     []scaled
}

func (p *tracePlay) work() time.Duration { return time.Duration(p.dilation) * resnetWork }
func (p *tracePlay) slo() time.Duration  { return time.Duration(p.dilation) * resnetSLO }
func (p *tracePlay) rate() float64       { return resnetRate / float64(p.dilation) }

// function returns the manifest of a function that scales in the given way.
func (p *tracePlay) function(w scaled) string {
	return fmt.Sprintf(`apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %s}
spec:
  slo: {latency: %s}
  access: {namespaces: ["*"]}
  resources: {share: {sm: %d, quota: %d, quotaLimit: %d, memory: 10Gi}}
  scaling: {requestsPerSecond: %g, minReplicas: %d, maxReplicas: %d, window: %ds, scaleOutVotes: %d, scaleInVotes: %d, keepShared: %s}
  template:
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: server
        image: %q
        args: [--batch, 1=%s, --sm, "%d"]
        readinessProbe: {periodSeconds: 1, httpGet: {path: /v2/health/ready, port: 8080}}
        resources: {requests: {cpu: 100m}} # without, whatever else runs on this machine comes first
`, w.name, p.slo(), resnetSM, resnetQuota, w.quotaLimit, p.rate(), w.minimum, w.maximum, w.window, w.out, w.in, w.keepShared, modelImage, p.work(), resnetSM)
}

// replicas returns the same function for the simulator.
func (p *tracePlay) replicas(w scaled, ends time.Duration) *simulator.Replicas {
	return &simulator.Replicas{
		Share: share.Share{SMRequest: 10 * resnetSM, SMLimit: 10 * resnetSM, QuotaRequest: 10 * resnetQuota, QuotaLimit: share.PerMille(10 * w.quotaLimit),
			Memory: 10 << 30},
		Rate: scaling.Rate(p.rate()), Takes: p.work(), Ends: ends, Window: 500 * time.Millisecond, // as in the agents' configuration
		Policy: scaling.Policy{
			Window: time.Duration(w.window) * time.Second, Out: w.out, In: w.in, Min: w.minimum, Max: w.maximum, SharedFor: w.keepShared, Predict: scaling.Kalman,
		},
	}
}

// played is the result of a way to scale, on the cluster and in the simulator.
type played struct {
	scaled
	requests            int
	missed, simMissed   float64 // in percent
	cold, simCold       int
	gpu, simGPU         float64 // in seconds
	result              *client.Result
	watched             *watched
	startTime, endsTime time.Duration
}

// TestServingTraces plays published loads to functions on the cluster, and the same requests in the simulator of lab/serving, with the times that
// replicas took to start and to end on this cluster. Requests are dilated: they take, and are allowed to take, several times as long as in the profile,
// and arrive less frequently by the same factor, so that the processors can keep up. Seconds of the loads are not dilated.
func TestServingTraces(t *testing.T) {
	s := startServing(t)
	var stop context.CancelFunc
	s.ctx, stop = context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	var pods []*v1.Pod
	for _, app := range []string{"gshare-gateway", "gshare-controller"} {
		for _, p := range s.pods(t, "gshare-system", "app", app) {
			pods = append(pods, &p)
		}
	}
	s.realTime(t, pods, unix.SCHED_RR)
	defer s.realTime(t, nil, unix.SCHED_NORMAL)
	t.Run("ramp", s.playsRamp)
	t.Run("bursts", s.playsBursts)
}

// fastRamp is the load of FaST-GShare's figure 12, in requests per second, followed by a quiet period.
func fastRamp() traffic.Series {
	s := traffic.Series{Name: "ramp", Step: time.Second}
	for _, step := range []struct {
		seconds int
		rate    float64
	}{{5, 0}, {10, 30}, {10, 40}, {10, 50}, {15, 60}, {15, 70}, {15, 80}, {15, 90}, {15, 100}, {15, 110}, {10, 100}, {10, 90}, {15, 70}, {40, 50}, {60, 20}} {
		for range step.seconds {
			s.Counts = append(s.Counts, step.rate)
		}
	}
	return s
}

// playsRamp: at most 1 % of the ramp's requests are late or refused, with as many replicas as in the paper.
func (s *served) playsRamp(t *testing.T) {
	p := &tracePlay{name: "FaST ramp", series: fastRamp(), scale: 0.25, dilation: 4, ways: []scaled{
		{name: "ramp", quotaLimit: 80, window: 40, out: 6, in: 37, keepShared: 30 * time.Second, minimum: 1, maximum: 4},
	}}
	all := s.play(t, p)
	t.Log(p.table(all))
	r := all[0]
	if r.missed > 1 {
		t.Errorf("%.2f %% missed, want at most 1 %%", r.missed)
	}
	if got, want := r.watched.sequence(), "1-2-3-4-3-2-1"; got != want {
		t.Errorf("replicas %s, want %s", got, want)
	}
	r.check(t)
}

// playsBursts: on Dilu's bursty load, gshare misses fewer requests and starts fewer replicas than the baselines, which run on the same cluster at the
// same time, and takes less GPU time than keeping replicas alive. The baselines are functions configured to scale like FaST-GShare (eager), like
// INFless (keepalive), and like Dilu's global scaler (lazy). Only the replicas of Dilu and gshare may use more time than they reserve, up to twice as
// much, and only gshare has a reserve. According to the simulator, a function with the default window and votes starts as many replicas as lazy.
func (s *served) playsBursts(t *testing.T) {
	all, err := traffic.Read(published.Read(t, "dilu/bursty.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const atOnce = time.Millisecond
	p := &tracePlay{name: "Dilu bursty", series: all[0], scale: 1, dilation: 10, ways: []scaled{
		{name: "gshare", quotaLimit: 80, window: 40, out: 8, in: 37, keepShared: 10 * time.Minute, minimum: 1, maximum: 10},
		{name: "lazy", quotaLimit: 80, window: 40, out: 20, in: 30, keepShared: atOnce, minimum: 1, maximum: 10},
		{name: "keepalive", quotaLimit: 40, window: 60, out: 1, in: 59, keepShared: atOnce, minimum: 1, maximum: 10},
		{name: "eager", quotaLimit: 40, window: 10, out: 1, in: 9, keepShared: atOnce, minimum: 1, maximum: 10},
	}}
	results := s.play(t, p)
	t.Log(p.table(results))
	gshare, kept := results[0], results[2]
	for _, other := range results[1:] {
		if gshare.missed >= other.missed || gshare.cold >= other.cold {
			t.Errorf("gshare: %.2f %% missed, %d cold starts; %s: %.2f %%, %d: want less and fewer", gshare.missed, gshare.cold, other.name, other.missed, other.cold)
		}
	}
	if gshare.gpu >= kept.gpu {
		t.Errorf("gshare: %.1f GPU-seconds, keepalive %.1f: want less", gshare.gpu, kept.gpu)
	}
	gshare.check(t)
}

// play plays a load to functions on the cluster and in the simulator.
func (s *served) play(t *testing.T, p *tracePlay) (all []played) {
	t.Helper()
	var names []string
	for _, w := range p.ways {
		s.write(t, p.function(w))
		names = append(names, w.name)
	}
	for _, w := range p.ways {
		s.wait(t, "ready: "+w.name, func() bool { return s.readyFor(t, w.name) >= w.minimum })
		if err := s.ask(t, w.name); err != nil { // opens the connections along the path
			t.Fatal(err)
		}
	}
	length := p.series.Length()
	arrivals := traffic.Draw([]traffic.Source{{Series: &p.series, Scale: p.scale}}, length, 1)
	t.Logf("%s: %d requests in %v to each function, dilated by %d: %v each, objective %v", p.name, len(arrivals), length, p.dilation, p.work(), p.slo())
	results := make([]*client.Result, len(p.ways))
	stop := s.watch(t, names...)
	var wait sync.WaitGroup
	for n, w := range p.ways {
		sender := s.sender(t, w.name)
		wait.Go(func() {
			plan := client.Plan{Length: length, SLO: p.slo(), Schedule: func(yield func(time.Duration) bool) {
				for _, a := range arrivals {
					if !yield(a.At) {
						return
					}
				}
			}}
			var err error
			if results[n], err = client.Run(s.ctx, plan, sender, nil); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		})
	}
	time.Sleep(length)
	seen := stop()
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, name := range names {
		s.kubectl(t, "delete", "gpufunction", name)
	}
	var starts, ends []time.Duration
	for _, w := range seen {
		starts, ends = append(starts, w.starts...), append(ends, w.ends...)
	}
	for n, w := range p.ways {
		r := played{scaled: w, requests: len(arrivals), result: results[n], watched: seen[w.name], startTime: mean(starts), endsTime: mean(ends)}
		r.cold, r.gpu = r.watched.cold, r.watched.reserved
		r.missed = 100 * (1 - r.result.SLO.Ratio)
		s.simulate(t, p, arrivals, &r)
		t.Logf("%s: failures %v, p50 %.0f ms, p99 %.0f ms, lateness of the client p99 %.1f ms; replicas %s; starts %v, ends %v", w.name, r.result.Failures,
			r.result.Latency.P50, r.result.Latency.P99, r.result.Lateness.P99, r.watched.times(), r.watched.starts, r.watched.ends)
		all = append(all, r)
	}
	return all
}

func mean(times []time.Duration) (m time.Duration) {
	for _, d := range times {
		m += d / time.Duration(len(times))
	}
	return m
}

// readyFor returns how many pods of a function accept requests.
func (s *served) readyFor(t *testing.T, function string) (n int) {
	t.Helper()
	for _, p := range s.pods(t, "default", api.LabelFunction, function) {
		if _, ready := api.Address(&p); ready {
			n++
		}
	}
	return n
}

// sender sends requests for a function to both gateways.
func (s *served) sender(t *testing.T, function string) client.Sender {
	t.Helper()
	c := s.newClients(t, function)
	return &client.HTTP{
		Method: http.MethodPost, URL: "http://gateway/", Header: http.Header{"Host": {function + ".default"}},
		Client: &http.Client{Transport: &http.Transport{DialContext: c.dial, MaxIdleConnsPerHost: 1000}},
	}
}

// simulate plays the same requests in the simulator.
func (s *served) simulate(t *testing.T, p *tracePlay, arrivals []traffic.Arrival, r *played) {
	t.Helper()
	in := &simulator.Input{
		Functions: []simulator.Function{{Name: r.name, SLO: p.slo(), LoadCold: r.startTime, Replicas: p.replicas(r.scaled, r.endsTime)}},
		Arrivals:  arrivals, Until: p.series.Length(),
	}
	got, err := simulator.Run(s.ctx, in, "replicas")
	if err != nil {
		t.Fatal(err)
	}
	r.simMissed, r.simCold, r.simGPU = got.ViolationPercent(), got.ColdStarts, got.GPUSeconds
}

// How far the simulator may differ from the cluster.
const (
	agreeMissed = 1.5  // percentage points
	agreeGPU    = 0.05 // of the cluster's GPU time
	agreeCold   = 1
)

// agrees describes what differs too much between cluster and simulator. It returns "" if nothing does.
func (r *played) agrees() string {
	var found []string
	if d := r.simMissed - r.missed; max(d, -d) > agreeMissed {
		found = append(found, fmt.Sprintf("missed %+.2f points", d))
	}
	if d := r.simGPU - r.gpu; max(d, -d) > agreeGPU*r.gpu {
		found = append(found, fmt.Sprintf("GPU time %+.1f %%", 100*d/r.gpu))
	}
	if d := r.simCold - r.cold; max(d, -d) > agreeCold {
		found = append(found, fmt.Sprintf("cold starts %+d", d))
	}
	return strings.Join(found, ", ")
}

// check fails if the simulator differs too much from the cluster. It is not used for the baselines: their replicas are at their quota limit for long
// periods, and with kernels that are long compared to the agent's window they get less of their quota here than in the simulator.
func (r *played) check(t *testing.T) {
	t.Helper()
	if why := r.agrees(); why != "" {
		t.Errorf("%s: the simulator differs: %s", r.name, why)
	}
}

// table returns the results of cluster and simulator, side by side.
func (p *tracePlay) table(all []played) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\tREQUESTS\tMISSED %%\tsimulated\tCOLD STARTS\tsimulated\tGPU SECONDS\tsimulated\tTHE SIMULATOR\n", strings.ToUpper(p.name))
	for _, r := range all {
		verdict := "agrees"
		if why := r.agrees(); why != "" {
			verdict = "differs: " + why
		}
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%d\t%d\t%.1f\t%.1f\t%s\n", r.name, r.requests, r.missed, r.simMissed, r.cold, r.simCold, r.gpu, r.simGPU, verdict)
	}
	if err := w.Flush(); err != nil {
		panic(err) // a strings.Builder never fails
	}
	fmt.Fprintf(&b, "A start took %.2f s, an end %.2f s.", all[0].startTime.Seconds(), all[0].endsTime.Seconds())
	return b.String()
}
