package shapes

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config describes the GPUs of a fleet, which are all equal.
type Config struct {
	GPUs    int            // how many there are
	Memory  share.Bytes    // of each
	Reserve share.PerMille // fraction of every window that is kept free on a GPU that switches between configurations
}

// Fleet is a number of equal GPUs and the pods on them, packed by one policy.
type Fleet struct {
	config Config
	fresh  func() gpuState
	learn  func(Pod) // called with each pod that arrives
	gpus   []gpu
	home   map[int]location // by the id of the pod
}

// gpu is one GPU of a fleet. Its memory is accounted here, equally for all policies (F25).
type gpu struct {
	gpuState
	pods   int
	memory share.Bytes
}

type location struct {
	gpu int
	pod Pod
}

// Place places a pod on the used GPU where it wastes the least, or else on the first empty GPU. It returns the number of the GPU, or false
// if no GPU can take the pod. Among equal GPUs it takes the lower number. The ID must be new.
func (f *Fleet) Place(id int, p Pod) (int, bool) {
	if p.Check(f.config.Memory) != nil {
		return 0, false
	}
	f.learn(p)
	best := f.leastWaste(p)
	if best < 0 {
		best = f.firstEmpty()
	}
	if best < 0 {
		return 0, false
	}
	g := &f.gpus[best]
	g.place(id, p)
	g.pods++
	g.memory += p.Memory
	f.home[id] = location{best, p}
	return best, true
}

func (f *Fleet) leastWaste(p Pod) int {
	best, least := -1, maxWaste
	for i := range f.gpus {
		g := &f.gpus[i]
		if g.pods == 0 || g.memory+p.Memory > f.config.Memory {
			continue
		}
		if w, ok := g.offer(p, least); ok {
			best, least = i, w
		}
	}
	return best
}

// firstEmpty returns the number of an empty GPU, or -1. If there is none, it adds one to the fleet if the configuration allows. A GPU
// that has become empty counts as a new one.
func (f *Fleet) firstEmpty() int {
	for i := range f.gpus {
		if f.gpus[i].pods == 0 {
			f.gpus[i] = gpu{gpuState: f.fresh()}
			return i
		}
	}
	if len(f.gpus) < f.config.GPUs {
		f.gpus = append(f.gpus, gpu{gpuState: f.fresh()})
		return len(f.gpus) - 1
	}
	return -1
}

// Remove removes the pod with an ID from its GPU. An unknown ID changes nothing.
func (f *Fleet) Remove(id int) {
	s, ok := f.home[id]
	if !ok {
		return
	}
	delete(f.home, id)
	g := &f.gpus[s.gpu]
	g.remove(id)
	g.pods--
	g.memory -= s.pod.Memory
}

// Policies returns the names of the packing policies. All of them prefer the used GPU on which the pod wastes least to an empty GPU.
//
//	mra            FaST-GShare's maximal rectangles with keep-restructure, never packed again to fit a pod
//	mra-repack     the same, packed again before an empty GPU is taken (F27)
//	best-area      rectangles packed again for each pod, and slots with the reserve, as by profile gshare-rectangle
//	maxrects-bssf  maximal rectangles by best short side fit
//	replan         rectangles packed again for each pod, on the fullest GPU
//	slot-best-fit  slots, on the fullest GPU
//	slot           slots, on the GPU that is fullest by the shadow prices of its pods
func Policies() []string {
	return []string{"mra", "mra-repack", "best-area", "maxrects-bssf", "replan", "slot-best-fit", "slot"}
}

// New returns an empty fleet that packs pods by the named policy, or an error if there is no such policy.
func New(policy string, c Config) (*Fleet, error) {
	f := &Fleet{config: c, learn: func(Pod) {}, home: map[int]location{}}
	switch policy {
	case "mra":
		f.fresh = func() gpuState { return newMRA(c.Reserve, false) }
	case "mra-repack":
		f.fresh = func() gpuState { return newMRA(c.Reserve, true) }
	case "best-area":
		f.fresh = newBestArea(c.Reserve)
	case "maxrects-bssf":
		f.fresh = func() gpuState { return newMaxRects(c.Reserve) }
	case "replan":
		f.fresh = newCounted(rectangleTest(c.Reserve))
	case "slot-best-fit":
		f.fresh = newCounted(slotTest(c.Reserve))
	case "slot":
		prices, m := newPrices(c.Reserve), slotTest(c.Reserve)
		m.worth, f.learn = prices.worth, prices.learn
		f.fresh = newCounted(m)
	default:
		return nil, fmt.Errorf("unknown policy %q", policy)
	}
	return f, nil
}

// gpuState is the state that a policy keeps for one used GPU.
type gpuState interface {
	// offer returns what the pod would waste here, and false unless it fits and wastes less than the given amount.
	offer(p Pod, than waste) (waste, bool)
	place(id int, p Pod)
	remove(id int)
}

// waste is what a pod would leave unused on a GPU, in a unit of the policy's choice. The GPU with the least waste is taken; the second
// number breaks ties.
type waste struct{ first, second int64 }

func (w waste) less(o waste) bool {
	return cmp.Or(cmp.Compare(w.first, o.first), cmp.Compare(w.second, o.second)) < 0
}

// maxWaste is more than the waste on any GPU.
var maxWaste = waste{first: math.MaxInt64}
