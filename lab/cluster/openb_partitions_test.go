package cluster

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// TestOpenbStaticPartitions measures what static SM partitions of MPS would cost (docs/adr/0007): shares become whole chunks, and one
// that comes to a GPU with clients cannot get a partition there before they have gone. Pods arrive as in FGD's method; none leaves.
func TestOpenbStaticPartitions(t *testing.T) {
	for list, want := range map[string]struct{ rounding, waiting float64 }{
		"default": {0.5, 35}, "gpushare100": {3, 35}, // floors, in percent of the shares that are placed without partitions
	} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			nodes, pods := openb(t, list, 1)
			exact := arrivals(t, nodes, pods, 0)
			inChunks := arrivals(t, nodes, chunked(pods), exact.arrived)
			rounding := 100 * float64(exact.shares-inChunks.shares) / float64(exact.shares)
			waiting := 100 * float64(exact.beside) / float64(exact.shares)
			t.Logf("%d shares arrive; %d are placed, %d in chunks of %d SMs (%.1f %% fewer); %d, %.1f %%, come to a GPU with others",
				exact.asked, exact.shares, inChunks.shares, chunk, rounding, exact.beside, waiting)
			if rounding < want.rounding || waiting < want.waiting {
				t.Error("static partitions cost less than docs/adr/0007 says")
			}
		})
	}
}

// An H100 has 132 SMs; from Hopper on a partition has a multiple of 8 of them (NVIDIA MPS, Static SM Partitioning).
const (
	chunk = 8
	sms   = 132
)

// chunked rounds the parts of a GPU up to whole chunks; more than fit are a whole GPU.
func chunked(pods []Pod) (rounded []Pod) {
	for _, p := range pods {
		if isShare(&p) {
			chunks := (int(p.Milli)*sms + 1000*chunk - 1) / (1000 * chunk)
			p.Milli = min(packing.WholeGPU, packing.MilliGPU((1000*chunk*chunks+sms-1)/sms))
		}
		rounded = append(rounded, p)
	}
	return rounded
}

func isShare(p *Pod) bool { return p.GPUs == 1 && p.Milli < packing.WholeGPU }

// counter counts the shares that a policy places. It stands before the policy.
type counter struct {
	policy
	arrived               int             // pods
	asked, shares, beside int             // of them: that ask for a part of a GPU, that got one, one that somebody had a part of
	used                  map[[2]int]bool // GPUs that somebody has a part of
}

func (c *counter) placed(s *shape, machine int, gpus []int) {
	c.policy.placed(s, machine, gpus)
	if !isShare(s.pod) {
		return
	}
	at := [2]int{machine, gpus[0]}
	if c.used[at] {
		c.beside++
	}
	c.used[at] = true
	c.shares++
}

// arrivals lets so many pods arrive, the list again and again, and counts; 0 stands for those that ask for 1.3 times the GPUs.
func arrivals(t *testing.T, nodes []Node, pods []Pod, most int) *counter {
	t.Helper()
	s := simulation(t, Config{Nodes: nodes, Pods: pods, Policy: "gshare", Order: RandomOrder, Seed: 1})
	c := &counter{policy: s.policy, used: map[[2]int]bool{}}
	s.policy = c
	var asked packing.MilliGPU
	for c.arrived < most || most == 0 && asked < s.capacity*13/10 {
		next := s.list[c.arrived%len(s.list)]
		if isShare(next.pod) {
			c.asked++
		}
		asked += next.pod.gpu()
		c.arrived++
		s.decide(next)
	}
	return c
}
