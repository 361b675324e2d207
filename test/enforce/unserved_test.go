package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestUnservedProcesses checks that, while the token server is away, the processes of a pod together use its quota, and that each gets
// a part of it.
func TestUnservedProcesses(t *testing.T) {
	t.Parallel()
	const processes, quota, away, length = 4, 200, second / 2, 2 * second
	pod := enforce.Pod{Share: part(share.Whole, quota), Load: greedy()}
	for range processes - 1 {
		pod.More = append(pod.More, greedy())
	}
	m, err := enforce.Experiment{Folder: built(t), Tokens: table, Length: length, Pods: []enforce.Pod{pod}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.GPU.Run(away); err != nil {
		t.Fatal(err)
	}
	m.Server.Close()
	if err := m.GPU.Run(length); err != nil {
		t.Fatal(err)
	}
	from := away + 2*window // by then, the last token and the first window have ended
	got := m.Spans(0).Busy(from, length)
	t.Logf("the pod is busy for %.1f %% of the time", 100*got)
	if most := float64(quota)/float64(share.Whole) + 0.02; got > most || got < 0.15 {
		t.Errorf("the pod is busy for %.1f %% of the time, its quota is %d ‰", 100*got, quota)
	}
	for i := range processes {
		part := m.Process(0, i).Busy(from, length)
		t.Logf("process %d: %.1f %%", i, 100*part)
		if part < 0.02 {
			t.Errorf("process %d is busy for %.1f %% of the time, a fair part is 5 %%", i, 100*part)
		}
	}
}

// TestUnservedProcessEnds checks that when a process is killed, the others get its turns.
func TestUnservedProcessEnds(t *testing.T) {
	t.Parallel()
	const away, killed, length = second / 2, second, 2 * second
	pod := enforce.Pod{Share: part(share.Whole, 200), Load: greedy(), More: [][]string{greedy()}}
	m, err := enforce.Experiment{Folder: built(t), Tokens: table, Length: length, Pods: []enforce.Pod{pod}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, step := range []struct {
		until time.Duration
		do    func()
	}{{away, m.Server.Close}, {killed, func() { m.Kill(0, 1) }}, {length, func() {}}} {
		if err := m.GPU.Run(step.until); err != nil {
			t.Fatal(err)
		}
		step.do()
	}
	both, alone := m.Process(0, 0).Busy(away+2*window, killed), m.Process(0, 0).Busy(killed+2*window, length)
	t.Logf("the first process is busy for %.1f %% of the time, then alone for %.1f %%", 100*both, 100*alone)
	if both > 0.15 || alone < 0.17 || alone > 0.22 {
		t.Errorf("the first process is busy for %.1f %% of the time, then alone for %.1f %%", 100*both, 100*alone)
	}
}

// TestUnservedLong checks that while the token server is away, two pods have their quotas whatever the length of the kernels and graphs of one of
// them: over many windows within 2 points and a kernel, and in no period of 10 s beyond the quota by more than one kernel or graph, and the other
// one, which makes up for such a kernel, by a window more.
func TestUnservedLong(t *testing.T) {
	t.Parallel()
	const away, ten = second, 10 * second
	for _, test := range []struct {
		kernel    time.Duration
		graph     int // kernels of a graph; 0 for plain launches
		processes int
		length    time.Duration
		always    bool
	}{
		{ms / 2, 0, 1, 11 * second, false}, {ms, 0, 1, 11 * second, false}, {2 * ms, 0, 1, 11 * second, false}, {5 * ms, 0, 1, 11 * second, false},
		{10 * ms, 0, 1, 11 * second, false}, {ms, 20, 1, 11 * second, true}, {20 * ms, 0, 1, 11 * second, false}, {50 * ms, 0, 1, 11 * second, false},
		{200 * ms, 0, 1, 21 * second, true}, {second, 0, 1, 61 * second, false},
		{ms, 0, 4, 11 * second, false}, {100 * ms, 0, 4, 21 * second, true},
	} {
		if !test.always && !*full {
			continue
		}
		t.Run(fmt.Sprintf("%v x %d in %d processes", test.kernel, max(test.graph, 1), test.processes), func(t *testing.T) {
			load := []string{kernel(test.kernel, share.Whole)}
			if test.graph > 0 {
				load = append(load, "as=graph", fmt.Sprintf("graph=%d", test.graph))
			}
			pods := []enforce.Pod{{Share: part(600, 200), Load: load}, {Share: part(600, 600), Load: greedy()}}
			for range test.processes - 1 {
				pods[0].More = append(pods[0].More, load)
			}
			m := open(t, enforce.Experiment{Tokens: table, Length: test.length, Pods: pods})
			if err := m.GPU.Run(away); err != nil {
				t.Fatal(err)
			}
			m.Server.Close()
			if err := m.GPU.Run(test.length); err != nil {
				t.Fatal(err)
			}
			longest := test.kernel * time.Duration(max(test.graph, 1)) * 10 / 6
			points := 0.02 + longest.Seconds()/(test.length-away).Seconds()
			for i, quota := range []float64{0.2, 0.6} {
				got, most := m.Spans(i).Busy(away, test.length), m.Spans(i).Most(ten, away)
				t.Logf("pod %d: %.1f %%, in 10 s at most %.2f s", i, 100*got, most.Seconds())
				if got > quota+points || got < quota-points {
					t.Errorf("pod %d has %.1f %% of the time without the server, its quota is %.0f %%", i, 100*got, 100*quota)
				}
				limit := quota*ten.Seconds() + max(0.2, longest.Seconds())
				if i == 1 {
					limit += window.Seconds() // it makes up for what it lost before, in windows that need not begin with the 10 s
				}
				if most.Seconds() > limit {
					t.Errorf("pod %d has %.2f s in 10 s, want at most %.2f s", i, most.Seconds(), limit)
				}
			}
		})
	}
}
