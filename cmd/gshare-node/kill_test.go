package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/enforce"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// narrow takes a millisecond on 40 % of the SMs: two of them fit the device, so that two pods that run at once are seen.
const narrow = "spin_ns1000000_sm400_blocks64"

// runAhead lets clients queue enough for a busy machine to keep its device busy.
const runAhead = "runAhead: 4ms"

// margin is what a pod may have beyond its part, and how much of the time two may run at once: at each of the three changes
// of turns in a window the kernels that are queued still run. It is wide, since all this is in real time.
const margin = 0.1

// pod is a greedy client. Two of them need more SMs than there are, so that one must rest when another runs.
type pod struct {
	name  string
	quota int // percent
	*fakegpu.Running
}

func somePods() []pod {
	return []pod{{name: "a", quota: 45}, {name: "b", quota: 30}, {name: "c", quota: 15}}
}

func startPods(t *testing.T, b *bench) []pod {
	t.Helper()
	pods := somePods()
	for i := range pods {
		pods[i].Running = b.run(t, pods[i].name, 60, pods[i].quota, "--", b.program("spin"), narrow)
	}
	return pods
}

// now is the time of the device, by which kernels are dated.
func (b *bench) now() time.Duration { return b.gpu.Clock().Now() }

func (b *bench) spans(p pod) enforce.Spans { return b.gpu.Spans(p.PID) }

// normal waits until the agent knows all pods and each has run a kernel since; it gives the time of that.
func (b *bench) normal(t *testing.T, pods []pod) time.Duration {
	t.Helper()
	eventually(t, "all are back", func() bool {
		known := 0
		for _, p := range pods {
			if b.launches(t, p.name) > 0 {
				known++
			}
		}
		return known == len(pods)
	})
	b.allRun(t, pods)
	return b.now()
}

// allRun waits until each pod has run one more kernel.
func (b *bench) allRun(t *testing.T, pods []pod) {
	t.Helper()
	since := b.now()
	for _, p := range pods {
		eventually(t, p.name+" runs", func() bool {
			spans := b.spans(p)
			return len(spans) > 0 && spans[len(spans)-1].Start > since
		})
	}
}

// enough is how many kernels make a period in which parts can be told: a second's, where the device is not kept waiting.
const enough = 900

// worked waits until the pods together have run enough kernels more; it gives the time of that.
func (b *bench) worked(t *testing.T, pods []pod) time.Duration {
	t.Helper()
	ran := func() (sum int) {
		for _, p := range pods {
			sum += b.gpu.Ran(p.PID)
		}
		return sum
	}
	until := ran() + enough
	eventually(t, "they have worked for a while", func() bool { return ran() >= until })
	return b.now()
}

// greedy are the pods that had more than their part of a period.
func (b *bench) greedy(pods []pod, from, to time.Duration) (names []string) {
	for _, p := range pods {
		if b.spans(p).Busy(from, to) > float64(p.quota)/100+margin {
			names = append(names, p.name)
		}
	}
	return names
}

// together is the part of a period in which kernels of more than one pod ran.
func (b *bench) together(pods []pod, from, to time.Duration) float64 {
	type edge struct {
		at   time.Duration
		more int
	}
	var edges []edge
	for _, p := range pods {
		for _, s := range b.spans(p) { // one stream: they do not overlap
			if start, end := max(s.Start, from), min(s.End, to); start < end {
				edges = append(edges, edge{start, 1}, edge{end, -1})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.at - b.at) })
	sum, running, last := time.Duration(0), 0, from
	for _, e := range edges {
		if running > 1 {
			sum += e.at - last
		}
		running, last = running+e.more, e.at
	}
	return float64(sum) / float64(to-from)
}

func (b *bench) parts(pods []pod, from, to time.Duration) (percent []int) {
	for _, p := range pods {
		percent = append(percent, int(100*b.spans(p).Busy(from, to)+0.5))
	}
	return percent
}

// TestKilledAgentUnderLoad kills the agent again and again while real clients launch without end, and starts another one at
// once, as systemd does: nobody ends or hangs, nobody gets more than its part, no two run at once.
func TestKilledAgentUnderLoad(t *testing.T) {
	b := newBench(t, runAhead)
	a := b.start(t)
	pods := startPods(t, b)
	b.normal(t, pods)
	var away, late []time.Duration
	for round := range 5 {
		killed := b.now()
		a.end(syscall.SIGKILL)
		a = b.start(t)
		ready := b.now()
		back := b.normal(t, pods)
		away, late = append(away, ready-killed), append(late, back-ready)
		end := b.worked(t, pods)
		t.Logf("round %d: away for %v, normal %v later; then %v %% of the time", round, (ready - killed).Round(time.Millisecond),
			(back - ready).Round(time.Millisecond), b.parts(pods, back, end))
		if names := b.greedy(pods, back, end); len(names) > 0 {
			t.Errorf("round %d: more than their part: %v", round, names)
		}
		b.takesTurns(t, pods, back, end)
	}
	slices.Sort(away)
	slices.Sort(late)
	// A client that waits for a lease is late every time; on a busy machine one may be late now and then. A machine that is too busy to start the
	// agent in time is too busy for the clients as well.
	if bound := max(time.Second, 10*away[2]); late[0] > bound {
		t.Errorf("normal %v (minimum) after the restart, which took %v (median)", late[0], away[2])
	}
}

// takesTurns holds that hardly any time two pods run at once.
func (b *bench) takesTurns(t *testing.T, pods []pod, from, to time.Duration) {
	t.Helper()
	if twice := b.together(pods, from, to); twice > margin {
		t.Errorf("two run at once for %.1f %% of %v", 100*twice, to-from)
	}
}

// TestAgentGoneForLong leaves the clients alone for longer than any token or lease: each goes on, within its part.
func TestAgentGoneForLong(t *testing.T) {
	b := newBench(t, runAhead)
	a := b.start(t)
	pods := startPods(t, b)
	b.normal(t, pods)
	killed := b.now()
	a.end(syscall.SIGKILL)
	from, leaseEnds := killed+500*time.Millisecond, killed+tokenserver.Lease
	to := leaseEnds + 2*time.Second
	time.Sleep(to - b.now())
	for _, end := range []time.Duration{leaseEnds, to} { // from the kill on: what a pod lacked before the leases ended it may have after
		t.Logf("from %v to %v after the kill: %v %% of the time", from-killed, end-killed, b.parts(pods, from, end))
		if names := b.greedy(pods, from, end); len(names) > 0 {
			t.Errorf("more than their part: %v", names)
		}
	}
	b.allRun(t, pods)
	b.start(t)
	ready := b.now()
	t.Logf("normal %v after the restart", (b.normal(t, pods) - ready).Round(time.Millisecond))
}

// TestMemoryOverRestarts: while agents come and go, what a process holds goes on counting, and its limit on bounding it.
func TestMemoryOverRestarts(t *testing.T) {
	const held = 512 * share.MiB
	b := newBench(t)
	a := b.start(t)
	run := b.run(t, "a", 60, 50, "--", b.program("hold"))
	counted := func() bool { return b.used(t) == held }
	eventually(t, "the memory is counted", counted)
	for range 3 {
		a.end(syscall.SIGKILL)
		a = b.start(t)
		eventually(t, "the memory is counted again", counted)
	}
	if err := syscall.Kill(run.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err := run.Wait()
	if status, ok := statusOf(err); !ok || !status.Signaled() {
		t.Errorf("it had ended by itself: %v", err)
	}
	eventually(t, "its share is back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
}

// used is the device memory that the only run holds, as the agent knows.
func (b *bench) used(t *testing.T) share.Bytes {
	t.Helper()
	if runs := b.mustStatus(t).Runs; len(runs) == 1 {
		return runs[0].VGPUs[0].UsedMemory
	}
	return -1
}

// TestWithoutTheHook is the control of both: what no hook bounds has more than its part, and runs beside the others.
func TestWithoutTheHook(t *testing.T) {
	b := newBench(t)
	pods := somePods()
	for i := range pods {
		r, err := b.gpu.Start(fakegpu.Client{Folder: b.folder, Arguments: []string{"spin", narrow}, SMs: 600})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		pods[i].Running = r
	}
	b.allRun(t, pods)
	from := b.now()
	to := b.worked(t, pods)
	if names := b.greedy(pods, from, to); len(names) == 0 {
		t.Error("without the hook nobody has more than its part")
	}
	if twice := b.together(pods, from, to); twice <= margin {
		t.Errorf("without the hook two run at once for %.1f %% of the time", 100*twice)
	}
}
