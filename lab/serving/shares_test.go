package serving

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/lab/serving/residency"
	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// One request to a function without instances, by hand: it arrives at 0.25 s, the scaler sees it when the second is over, the
// instance is loaded 5 s later, and a batch of one on 100 per mille is 12 ms + 6 ms * 900/100 = 66 ms, which is more than half the
// SLO, so that the smallest share chosen is larger.
func TestFirstRequest(t *testing.T) {
	in := onGPUs(1, 1, make([]float64, 20))
	in.Arrivals = []arrival.Arrival{{At: 250 * ms}}
	r := run(t, in, "eager")
	choices, err := scaling.SLO{Latency: 120 * ms, Headroom: headroom}.Choices(in.Functions[0].Points)
	if err != nil {
		t.Fatal(err)
	}
	efficient, err := scaling.MostEfficient(choices)
	if err != nil {
		t.Fatal(err)
	}
	up, err := scaling.ScaleUp(1, choices, 1) // for a request a second, the least share that keeps the SLO
	if err != nil || len(up) != 1 {
		t.Fatal(up, err)
	}
	added := up[0]
	takes := surface(in.Functions[0].Points).Latency(1, added.Share.SMRequest)
	if want := 6*time.Second - 250*ms + takes; (r.P50 - want).Abs() > ms {
		t.Errorf("answered after %v, want %v on %v (efficient: %v)", r.P50, want, added.Share, efficient.Share)
	}
	if r.Violations != 1 || r.ColdStarts != 1 {
		t.Errorf("%+v", r)
	}
	// Reserved from 1 s until the autoscaler deletes it, 10 samples of nothing later.
	want := float64(added.Share.SMRequest) / 1000 * 10
	if math.Abs(r.GPUSeconds-want) > 0.2*want {
		t.Errorf("%.3f GPU-seconds, want about %.3f", r.GPUSeconds, want)
	}
}

// bench returns a GPU with one instance for each share, without a policy.
func bench(each ...share.Share) (*clock, *gpu, []*instance) {
	f := vertical("f")
	c := &clock{}
	p := &sharedFunction{sim: &shareSimulation{clock: c, record: &record{}}, function: &f, surface: surface(f.Points), queue: &fifoQueue{}}
	g := &gpu{clock: c, meter: &usageMeter{until: time.Hour}}
	var all []*instance
	for _, s := range each {
		i := &instance{function: p, gpu: g, ready: true, configuration: scaling.Configuration{Share: s}, target: 1}
		g.add(i)
		all = append(all, i)
	}
	return c, g, all
}

func elastic(request, limit share.PerMille) share.Share {
	return share.Share{SMRequest: request, SMLimit: limit, QuotaRequest: share.Whole, QuotaLimit: share.Whole}
}

// Alone, an instance in a hurry gets its limit; beside others all get their requests and what is left over in equal parts.
func TestDivision(t *testing.T) {
	_, g, i := bench(elastic(300, 600), elastic(200, 400), elastic(300, 300))
	want := func(grants ...share.PerMille) {
		t.Helper()
		var got []share.PerMille
		for _, x := range g.running {
			got = append(got, x.sm)
		}
		if !slices.Equal(got, grants) {
			t.Errorf("%v, want %v", got, grants)
		}
	}
	g.startBatch(i[0], []int32{0})
	want(600)
	g.startBatch(i[1], []int32{1})
	want(600, 400)
	g.startBatch(i[2], []int32{2})
	want(400, 300, 300)
	g.endBatch(i[0])
	want(400, 300)
	i[2].residency = scaling.Shared
	g.divideSMs()
	want(400, 300)
}

// No instance ever has fewer SMs than its request, and no GPU grants more than it has.
func TestDivisionBounds(t *testing.T) {
	in := onGPUs(2, 11, bursts(120, 3), bursts(120, 4), bursts(120, 6))
	c, r := &clock{}, newRecord(in)
	w, err := newShareSimulation(in, c, r, sharePolicy{elastic: true, pool: retention, urgent: true, scaling: scaling.Policy{Max: 100}})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	next, second := 0, time.Second
	for c.now < in.Until {
		at, ok := c.nextTime()
		switch {
		case next < len(in.Arrivals) && (!ok || in.Arrivals[next].At <= at) && in.Arrivals[next].At < second:
			c.now = in.Arrivals[next].At
			w.arrive(int32(next))
			next++
		case ok && at < second:
			c.runNext()
		default:
			c.now, second = second, second+time.Second
			if err := w.everySecond(); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range w.gpus {
			sum, memory := share.PerMille(0), share.Bytes(0)
			for _, i := range g.running {
				sum += i.sm
				if i.sm < i.reservedSMs() || i.sm > max(i.reservedSMs(), i.configuration.Share.SMLimit) {
					t.Fatalf("%d per mille for %v", i.sm, i.configuration.Share)
				}
			}
			for _, i := range g.residents {
				memory += i.configuration.Share.Memory
			}
			if sum > share.Whole || memory > in.GPUMemory {
				t.Fatalf("%d per mille of the SMs and %d bytes are given away", sum, memory)
			}
			checked += len(g.running)
		}
		for _, p := range w.functions {
			if n := count(p.instances, func(i *instance) bool { return i.residency == scaling.Shared && !i.leaving }); n > 1 {
				t.Fatalf("%d instances of a function share", n)
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d grants were looked at", checked)
	}
}

func count(all []*instance, is func(*instance) bool) int {
	n := 0
	for _, i := range all {
		if is(i) {
			n++
		}
	}
	return n
}

// Table 3's direction on bursts: lazy co-scaling misses less than eager and keep-alive, with fewer cold starts and less GPU
// time; and gshare's combination is at least as good in all three.
func TestBursts(t *testing.T) {
	sum := map[string]Result{}
	for seed := range uint64(2) {
		in := onGPUs(8, seed, bursts(400, 10+seed), bursts(400, 20+seed))
		for _, policy := range []string{"eager", "keepalive", "lazy", "gshare"} {
			r, s := run(t, in, policy), sum[policy]
			s.Requests, s.Violations = s.Requests+r.Requests, s.Violations+r.Violations
			s.ColdStarts, s.GPUSeconds = s.ColdStarts+r.ColdStarts, s.GPUSeconds+r.GPUSeconds
			sum[policy] = s
		}
	}
	for policy, r := range sum {
		t.Logf("%-9s %5.2f %% missed, %3d cold starts, %6.0f GPU-seconds", policy, r.ViolationPercent(), r.ColdStarts, r.GPUSeconds)
	}
	for _, pair := range [][2]string{{"lazy", "eager"}, {"lazy", "keepalive"}, {"gshare", "lazy"}} {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			a, b := sum[pair[0]], sum[pair[1]]
			if a.Violations > b.Violations || a.ColdStarts > b.ColdStarts || a.GPUSeconds > b.GPUSeconds {
				t.Errorf("%s is not as good as %s", pair[0], pair[1])
			}
		})
	}
}

// A retired instance is back at once, one from host memory after its load; a deleted one has to be loaded from storage.
func TestRetainedInstancesComeBack(t *testing.T) {
	calm := make([]float64, 200)
	for i := range calm {
		if i < 20 || i >= 120 && i < 140 {
			calm[i] = 30
		}
	}
	lazy, gshare := run(t, onGPUs(1, 5, calm), "lazy"), run(t, onGPUs(1, 5, calm), "gshare")
	if lazy.ColdStarts != 2 || gshare.ColdStarts != 1 || gshare.WarmStarts != 0 || gshare.Violations >= lazy.Violations {
		t.Errorf("lazy %+v, gshare %+v", lazy, gshare)
	}
}

func TestResidencyByUse(t *testing.T) {
	w := &shareSimulation{clock: &clock{now: time.Minute}, policy: sharePolicy{pool: retention}}
	g := &gpu{clock: w.clock, meter: &usageMeter{}}
	i := &instance{id: 1, ready: true, residency: scaling.Hot, gpu: g}
	p := &sharedFunction{sim: w, instances: []*instance{i}, state: scaling.State{Instances: []scaling.Instance{{ID: 1}}, LastID: 1}}
	i.function = p
	i.use.Add(40*time.Second, time.Minute)
	if p.review(); i.residency != scaling.Hot {
		t.Errorf("one used for two thirds of the window becomes %v", i.residency)
	}
	i.use = residency.Meter{}
	if p.review(); i.residency != scaling.Shared {
		t.Errorf("an unused hot instance becomes %v", i.residency)
	}
}

// A few requests, over and over: every policy must load each function that is asked for once, and gshare loads none again. Its
// instances reserve less, too, as they give their SMs up between requests. A policy that loads them again is the control.
func TestSparseRequests(t *testing.T) {
	counts := make([]float64, 600)
	for s := 0; s < len(counts); s += 25 {
		counts[s] = 1
	}
	used := map[string]float64{}
	for _, policy := range []string{"eager", "keepalive", "lazy", "gshare"} {
		r := run(t, onGPUs(2, 3, counts, counts, make([]float64, len(counts))), policy)
		used[policy] = r.GPUSeconds
		if r.ColdStarts < 2 || policy == "gshare" && r.ColdStarts > 2 || policy == "lazy" && r.ColdStarts == 2 {
			t.Errorf("%s: %d cold starts of two functions", policy, r.ColdStarts)
		}
	}
	if used["gshare"] > 0.5*min(used["lazy"], used["keepalive"], used["eager"]) {
		t.Errorf("GPU-seconds: %v", used)
	}
}
