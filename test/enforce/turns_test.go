package enforce_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTurns checks that a share gets its quota whatever the length of its kernels or graphs, above all where they are about as long as its
// turns, although its turns begin late: the token server acts up to 1 ms late, and the neighbour's kernels end up to 2 ms late.
func TestTurns(t *testing.T) {
	t.Parallel()
	always := []string{"20 %, 22 ms, graph true", "20 %, 30 ms, graph false"}
	length := 11 * second
	for _, quota := range []share.PerMille{100, 200, 300} {
		for _, n := range []int{2, 5, 10, 15, 18, 20, 21, 22, 25, 30, 40, 50, 80, 100} {
			for _, graph := range []bool{false, true} {
				name := fmt.Sprintf("%d %%, %d ms, graph %v", quota/10, n, graph)
				if !*full && !slices.Contains(always, name) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					took := time.Duration(n) * ms
					load := []string{kernel(took, share.Whole), "sync=1"}
					if graph {
						load = []string{kernel(took/10, share.Whole), "sync=1", "as=graph", "graph=10"}
					}
					spans := run(t, enforce.Experiment{Tokens: table, Length: length, Late: ms, Pods: []enforce.Pod{
						{Share: part(share.Whole, quota), Load: load},
						{Share: part(share.Whole, 600), Load: []string{kernel(2*ms, share.Whole)}},
					}})
					for i, want := range []float64{float64(quota) / 1000, 0.6} {
						got, most := spans[i].Busy(second, length), spans[i].Most(10*second, 0).Seconds()
						t.Logf("pod %d: %.1f %%, in 10 s at most %.2f s", i, 100*got, most)
						if got < want-0.02 {
							t.Errorf("pod %d has %.1f %% of the time, its quota is %.0f %%", i, 100*got, 100*want)
						}
						if longest := max(took, 2*ms).Seconds(); most > 10*want+0.05+longest {
							t.Errorf("pod %d has %.2f s of 10, its quota is %.0f %%", i, most, 100*want)
						}
					}
				})
			}
		}
	}
}
