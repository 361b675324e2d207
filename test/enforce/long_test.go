package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// longLoad is the load of a share with 60 % of the SMs, whose kernels or graphs may take longer than its turns.
type longLoad struct {
	name      string
	quota     share.PerMille
	processes int
	args      []string
	longest   time.Duration // of one kernel or graph on all SMs
	neighbour []string      // the load of a share of 60 % of SMs and time; greedy if nil
	lies      bool          // it reports false times to the token server
	always    bool          // it is tested even without -full
}

// changing returns the name of a kernel that first takes 20 us for the given number of launches, then the given length for 100, and so on
// alternately.
func changing(after int, length time.Duration) string {
	return fmt.Sprintf("%s_after%d_ns%d_for100", kernel(20*time.Microsecond, share.Whole), after, length.Nanoseconds())
}

var (
	longGraph = []string{kernel(ms/2, share.Whole), "as=graph", "graph=400"}
	server    = []string{kernel(2*ms, share.Whole), "sync=1", at("pause", 10*ms)}
	longLoads = []longLoad{
		{"kernels of 0.5 ms", 200, 1, greedy(), ms / 2, nil, false, false},
		{"kernels of 5 ms", 200, 1, []string{kernel(5*ms, share.Whole)}, 5 * ms, nil, false, false},
		{"kernels of 20 ms", 200, 1, []string{kernel(20*ms, share.Whole)}, 20 * ms, nil, false, false},
		{"kernels of 50 ms", 200, 1, []string{kernel(50*ms, share.Whole)}, 50 * ms, nil, false, false},
		{"kernels of 100 ms", 200, 1, []string{kernel(100*ms, share.Whole)}, 100 * ms, nil, false, false},
		{"kernels of 200 ms", 200, 1, []string{kernel(200*ms, share.Whole)}, 200 * ms, nil, false, true},
		{"kernels of 1 s", 200, 1, []string{kernel(second, share.Whole)}, second, nil, false, false},
		{"kernels of 500 ms in 8 processes", 200, 8, []string{kernel(500*ms, share.Whole)}, 500 * ms, nil, false, true},
		{"kernels of 50 ms in 32 processes", 200, 32, []string{kernel(50*ms, share.Whole)}, 50 * ms, nil, false, false},
		{"kernels of 50 ms in 4 streams", 200, 1, []string{kernel(50*ms, share.Whole), "streams=4", "threads=2"}, 50 * ms, nil, false, false},
		{"a graph of 200 ms", 200, 1, longGraph, 200 * ms, nil, false, false},
		{"a graph of 200 ms, quota 5 %", 50, 1, longGraph, 200 * ms, nil, false, false},
		{"kernels that take 50 ms after 300 of 20 us", 200, 1, []string{changing(300, 50*ms)}, 50 * ms, nil, false, false},
		{"kernels that take 50 ms after 295 of 20 us", 200, 1, []string{changing(295, 50*ms)}, 50 * ms, nil, false, true}, // none of the first long ones is measured
		{"kernels that take 5 ms after 300 of 20 us", 200, 1, []string{changing(300, 5*ms)}, 5 * ms, nil, false, false},
		{"kernels of 200 ms beside a server", 200, 1, []string{kernel(200*ms, share.Whole)}, 200 * ms, server, false, false},
		{"kernels of 200 ms beside kernels of 500 ms", 200, 1, []string{kernel(200*ms, share.Whole)}, 500 * ms, []string{kernel(500*ms, share.Whole)}, false, false},
		{"kernels of 0.5 ms, lies", 200, 1, greedy(at("lie", ms/10)), ms / 2, nil, true, true},
	}
)

// TestLong checks that a share gets its quota over many windows whatever the length of its kernels, and exceeds it in no period of 10 s by
// more than one kernel or graph (or 2 points); and that its neighbour gets its own quota, and in no period of 10 s falls short by more than
// that.
func TestLong(t *testing.T) {
	t.Parallel()
	length := 11 * second
	if *full {
		length = 62 * second
	}
	for _, load := range longLoads {
		if !load.always && !*full {
			continue
		}
		t.Run(load.name, func(t *testing.T) {
			if testing.Short() && load.longest != 200*ms {
				t.SkipNow()
			}
			pods := []enforce.Pod{{Share: part(600, load.quota), Load: load.args}, {Share: part(600, 600), Load: load.neighbour}}
			for range load.processes - 1 {
				pods[0].More = append(pods[0].More, load.args)
			}
			if load.neighbour == nil {
				pods[1].Load = greedy()
			}
			spans := run(t, enforce.Experiment{Tokens: table, Length: length, Pods: pods})
			kernel := load.longest * 10 / 6
			for i, s := range spans {
				const ten = 10 * second
				quota, slack := float64(pods[i].Share.QuotaRequest)/1000, max(0.2, kernel.Seconds())
				got, most, least := s.Busy(0, length), s.Most(ten, 0).Seconds(), s.Least(ten, 0, length).Seconds()
				t.Logf("pod %d: %.1f %%, in 10 s %.2f to %.2f s", i, 100*got, least, most)
				points := max(0.02, kernel.Seconds()/length.Seconds())
				if got > quota+points || i == 0 && most > 10*quota+slack {
					t.Errorf("pod %d: %.1f %%, at most %.2f s in 10 s, its quota is %.1f %%", i, 100*got, most, 100*quota)
				}
				wants := !load.lies && (i == 0 || load.neighbour == nil)
				if wants && (got < quota-points || i == 1 && least < 10*quota-slack) {
					t.Errorf("pod %d: %.1f %%, at least %.2f s in 10 s, its quota is %.1f %%", i, 100*got, least, 100*quota)
				}
			}
		})
	}
}

// TestLongControl is the negative control: without the hook, a share with kernels of 200 ms gets more than its quota.
func TestLongControl(t *testing.T) {
	t.Parallel()
	spans := run(t, enforce.Experiment{Tokens: table, Unhooked: true, Length: 5 * second, Pods: []enforce.Pod{
		{Share: part(600, 200), Load: []string{kernel(200*ms, share.Whole)}}, {Share: part(600, 600), Load: greedy()},
	}})
	if got := spans[0].Busy(0, 5*second); got < 0.3 {
		t.Errorf("the share of 20 %% got %.1f %% without the hook", 100*got)
	}
}
