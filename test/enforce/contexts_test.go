package enforce_test

import (
	"testing"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestContexts runs a pod that launches while no context is current, or another one than its streams', or into streams of a green context,
// beside a greedy pod. The driver takes the context from the stream; so each gets its quota, as if the pod had made that context current.
func TestContexts(t *testing.T) {
	t.Parallel()
	const quota, other, from, length = 200, 600, 5 * window, 2 * second
	for name, option := range map[string][]string{"own": nil, "none": {"context=none"}, "other": {"context=other"}, "green": {"context=green"}} {
		for kind, load := range map[string][]string{
			"kernels": {"spin_ns5000000_sm1000_blocks64"}, "graphs": {"spin_ns500000_sm1000_blocks64", "as=graph", "graph=10"}, "memsets": memsets,
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				spans := run(t, enforce.Experiment{Tokens: table, Length: length, Pods: []enforce.Pod{
					{Share: part(1000, quota), Load: append(load[:len(load):len(load)], option...)}, {Share: part(1000, other), Load: greedy()},
				}})
				for i, q := range []share.PerMille{quota, other} {
					if err := enforce.Accurate(spans[i], q, from, length); err != nil {
						t.Errorf("pod %d: %v", i, err)
					}
				}
			})
		}
	}
}
