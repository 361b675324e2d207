package enforce_test

import (
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
