package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Parameters of the loads in the experiments with elastic shares.
const (
	grid     = 64 // blocks of each kernel
	learned  = 400 * ms
	burst    = 1500 * ms
	burstEnd = 2 * second
)

// elastic returns a share of class elastic.
func elastic(request, limit share.PerMille) share.Share {
	return share.Share{SMRequest: request, SMLimit: limit, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: share.MiB}
}

// inference returns a load of batches of ten kernels, for which the host waits. A batch starts every 25 ms if there are no
// neighbours.
func inference() []string {
	return []string{kernel(500*time.Microsecond, 100), "sync=10", fmt.Sprint("pause=", (20 * ms).Nanoseconds())}
}

// serving returns an SLO pod whose burst lasts until end, beside a best-effort trainer that always has work.
func serving(end time.Duration, more ...[]string) enforce.Experiment {
	return enforce.Experiment{Elastic: true, Pods: []enforce.Pod{
		{Share: elastic(300, 600), Priority: share.SLO, Load: inference(),
			More: [][]string{{kernel(500*time.Microsecond, 600), "sync=10", at("from", burst), at("until", end)}}},
		{Share: elastic(500, 900), Priority: share.BestEffort, Load: greedy(at("from", learned)), More: more},
	}}
}

// open starts an experiment, and stops it at the end of the test.
func open(t *testing.T, e enforce.Experiment) *enforce.Machine {
	t.Helper()
	e.Folder = built(t)
	m, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func watch(t *testing.T, m *enforce.Machine, until time.Duration, all []enforce.Ticks) []enforce.Ticks {
	t.Helper()
	all, err := m.Watch(until, all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestBurst checks that within three ticks of its cycle being stretched by a factor of 1.6, a bursting SLO pod has its limit and
// the trainer beside it is cut; and that the trainer has its own limit again within a second and never starves.
func TestBurst(t *testing.T) {
	t.Parallel()
	m := open(t, serving(burstEnd))
	ticks := watch(t, m, 3500*ms, nil)
	stretched := burst + 8*ms // batches take 5 ms
	up := ticks[0].First(burst, func(i enforce.Issue) bool { return i.SMs >= 590 })
	if up == 0 || up > stretched+3*enforce.Tick {
		t.Errorf("the pod has its limit at %v, its cycle was stretched at %v", up, stretched)
	}
	cut := ticks[1].First(burst, func(i enforce.Issue) bool { return i.SMs <= 300 })
	back := ticks[1].First(burstEnd, func(i enforce.Issue) bool { return i.SMs >= 890 })
	if cut == 0 || cut > stretched+3*enforce.Tick || back == 0 || back > burstEnd+second {
		t.Errorf("the trainer was cut at %v and has its limit again at %v", cut, back)
	}
	trainer, least := m.Spans(1), 1<<30
	for from := learned + 100*ms; from+second <= 3500*ms; from += 50 * ms {
		least = min(least, trainer.Launched(from, from+second))
	}
	t.Logf("limit after %v, trainer cut after %v, back after %v, at least %d kernels in a second", up-burst, cut-burst, back-burstEnd, least)
	if least < 100 {
		t.Errorf("the trainer had %d kernels in a second", least)
	}
}

// TestBurstControl is the negative control: without the hook, fewer kernels of the burst finish beside the trainer.
func TestBurstControl(t *testing.T) {
	t.Parallel()
	with := serving(burstEnd)
	with.Length = burstEnd
	without := with
	without.Unhooked = true
	a, b := run(t, with)[0].Kernels(burst, burstEnd), run(t, without)[0].Kernels(burst, burstEnd)
	t.Logf("%d kernels in the burst, %d without the hook", a, b)
	if a < b*6/5 {
		t.Errorf("%d kernels in the burst, %d without the hook", a, b)
	}
}

// TestLongBurst checks that a burst which lasts pushes the trainer down to its request, and not below it for more than half a second of it: in
// any two seconds of the burst, the trainer has what it requests, less that half second. The bursting pod has its own request all the time.
func TestLongBurst(t *testing.T) {
	t.Parallel()
	const over, period = burst + 5*second, 2 * second
	e := serving(over)
	e.Pods[0].More[0] = []string{kernel(5*ms, share.Whole), "sync=8", at("from", burst), at("until", over)}
	e.Pods[1].Load = []string{kernel(10*ms, share.Whole), "sync=8", at("from", learned)}
	m := open(t, e)
	if err := m.GPU.Run(over + 2*second); err != nil {
		t.Fatal(err)
	}
	slo, trainer := m.Spans(0), m.Spans(1)
	for from := burst; from+period <= over; from += 100 * ms {
		serves, trains := 0.6*slo.Busy(from, from+period), 0.9*trainer.Busy(from, from+period)
		t.Logf("from %v: the pod has %.1f %% of the SMs, the trainer %.1f %%", from, 100*serves, 100*trains)
		if serves < 0.29 || trains < 0.5*0.7 || trains > 0.56 {
			t.Errorf("from %v: the pod has %.1f %% of the SMs and the trainer %.1f %%, want 30 and 35 to 50 %%", from, 100*serves, 100*trains)
		}
	}
	if after := 0.9 * trainer.Busy(over+second, over+2*second); after < 0.8 {
		t.Errorf("a second after the burst, the trainer has %.1f %% of the SMs", 100*after)
	}
}

// TestCredit checks that, in any second, as many blocks are launched as were issued, for one process and for two. The control is
// the same load without the hook.
func TestCredit(t *testing.T) {
	t.Parallel()
	const until = burst + 1200*ms
	for name, more := range map[string][][]string{"one process": nil, "two processes": {greedy(at("from", learned))}} {
		t.Run(name, func(t *testing.T) {
			m := open(t, serving(until, more...))
			issued := watch(t, m, until, nil)[1][(learned+200*ms)/enforce.Tick:]
			excess := func(s enforce.Spans) int64 { return issued.Excess(s, grid, int64(1+len(more)), second) }
			over := excess(m.Spans(1))
			t.Logf("at most %d blocks beyond what was issued and a batch a thread", over)
			if over > 0 {
				t.Errorf("%d blocks beyond what was issued and a batch a thread", over)
			}
			free := serving(until, more...)
			free.Unhooked, free.Length = true, until+2*second // by then, everything launched until that time has run
			if over := excess(run(t, free)[1]); over <= 0 {
				t.Errorf("without the hook the credit is kept as well, by %d", -over)
			}
		})
	}
}

// TestOneCredit checks that two processes of a container share one credit, and that the survivor has all of it after the other
// dies.
func TestOneCredit(t *testing.T) {
	t.Parallel()
	const died, end = burst + 500*ms, burst + 900*ms // while both are limited by the tokens of an EMERGENCY
	m := open(t, serving(end, greedy(at("from", learned))))
	ticks := watch(t, m, died, nil)
	first, other := m.Process(1, 0).Launched(died-300*ms, died), m.Process(1, 1).Launched(died-300*ms, died)
	if first < (first+other)/4 || other < (first+other)/4 {
		t.Errorf("%d and %d kernels of two processes", first, other)
	}
	m.Kill(1, 0)
	ticks = watch(t, m, end, ticks)
	alone := m.Process(1, 1).Launched(end-300*ms, end)
	taken := func(kernels int, until time.Duration) float64 {
		return float64(kernels*grid) / float64(ticks[1].Issued(until-300*ms, until))
	}
	before, after := taken(first+other, died), taken(alone, end)
	t.Logf("%d and %d kernels, %.2f of what was issued, then %d of the survivor, %.2f", first, other, before, alone, after)
	if after < before*9/10 || after > before*11/10 {
		t.Errorf("the survivor took %.2f of what was issued, both before %.2f", after, before)
	}
}

// TestResize checks that a new limit applies within two ticks, to tokens and to kernels, even without contention, and that the
// limit can be raised again up to the cap.
func TestResize(t *testing.T) {
	t.Parallel()
	const length = 200 * ms
	m := open(t, enforce.Experiment{Elastic: true, Pods: []enforce.Pod{
		{Share: elastic(400, 800), Priority: share.BestEffort, Load: greedy()},
	}})
	ticks := watch(t, m, second, nil)
	// follows reports whether the number of launches, counted from two ticks after the limit was moved, is proportional to the limit,
	// compared to the launches at the cap.
	follows := func(limit share.PerMille, moved time.Duration) bool {
		from := moved + 2*enforce.Tick
		got, full := m.Spans(0).Launched(from, moved+length), m.Spans(0).Launched(second-length+2*enforce.Tick, second)
		t.Logf("limit %v: %d kernels, %d at the cap", limit, got, full)
		return 800*got <= full*int(limit+40) && 800*got >= full*int(limit-40)
	}
	if follows(400, second-length) || !follows(800, second-length) {
		t.Error("before it was moved, the limit is not the cap")
	}
	for _, limit := range []share.PerMille{400, 600, 800} {
		from := ticks[0][len(ticks[0])-1].At
		if err := m.Served[0].Resize(limit); err != nil {
			t.Fatal(err)
		}
		ticks = watch(t, m, from+length, ticks)
		if over := ticks[0].First(from+2*enforce.Tick, func(i enforce.Issue) bool { return i.SMs > limit }); over != 0 {
			t.Errorf("at %v it has more than %v", over, limit)
		}
		if !follows(limit, from) {
			t.Errorf("kernels do not follow a limit of %v", limit)
		}
	}
	for _, limit := range []share.PerMille{399, 801} {
		if m.Served[0].Resize(limit) == nil {
			t.Errorf("a limit of %v was taken", limit)
		}
	}
}

// TestServerDies kills the token server during an EMERGENCY. Meanwhile, processes go on with no more than their guarantee. Within a
// second after the server is back, all have reconnected and the trainer has at least its request.
func TestServerDies(t *testing.T) {
	t.Parallel()
	const died, again = burst + 100*ms, burst + 300*ms
	m := open(t, serving(burstEnd))
	ticks := watch(t, m, died, nil)
	if last := ticks[1][len(ticks[1])-1]; last.SMs > 300 {
		t.Fatalf("there is no EMERGENCY: the trainer has %v", last.SMs)
	}
	m.Server.Close()
	if err := m.GPU.Run(again); err != nil {
		t.Fatal(err)
	}
	if err := m.Serve(); err != nil {
		t.Fatal(err)
	}
	ticks = watch(t, m, again+second, nil)
	for i, c := range m.Served {
		if c.Connections() == 0 {
			t.Errorf("nobody of pod %d came back", i)
		}
		spans := m.Spans(i)
		for from := died; from < again+second; from += window {
			if spans.Launched(from, from+window) == 0 {
				t.Errorf("pod %d launched nothing in the window from %v", i, from)
			}
		}
		alone := spans.Busy(died+ms, again)
		t.Logf("pod %d was busy for %.1f %% without a server", i, 100*alone)
	}
	if busy := m.Spans(1).Busy(died+ms, again); busy > 500./900+0.02 {
		t.Errorf("without a server the trainer was busy for %.1f %% on 90 %% of the SMs; 50 are guaranteed", 100*busy)
	}
	if back := ticks[1].First(again+10*enforce.Tick, func(i enforce.Issue) bool { return i.SMs >= 490 }); back == 0 {
		t.Error("within a second the trainer never has its request again")
	}
}

// TestElasticOverhead checks that tokens cost ten pods on one slice at most one percent while there is no SLO pod to protect.
func TestElasticOverhead(t *testing.T) {
	t.Parallel()
	e := enforce.Experiment{Elastic: true, Length: second}
	for range 10 {
		e.Pods = append(e.Pods, enforce.Pod{Share: elastic(100, share.Whole), Priority: share.BestEffort,
			Load: []string{kernel(200*time.Microsecond, 100)}})
	}
	kernels := func(e enforce.Experiment) (n int) {
		for _, s := range run(t, e) {
			n += s.Kernels(second/2, e.Length)
		}
		return n
	}
	with := kernels(e)
	e.Unhooked = true
	without := kernels(e)
	loss := 1 - float64(with)/float64(without)
	t.Logf("%d kernels, %d without the hook: %.2f %% lost", with, without, 100*loss)
	if loss > 0.01 {
		t.Errorf("%.2f %% lost", 100*loss)
	}
}
