package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// filler fills slices so that they are valid by the way they are made, without asking any packer.
type filler struct {
	*cluster
	random *rand.Rand
	pods   int
}

func fillRandomly(t testing.TB, seed uint64) *filler {
	f := &filler{cluster: newCluster(t), random: rand.New(rand.NewPCG(seed, 1))}
	for n := range 3 {
		node := fmt.Sprintf("n%d", n)
		f.node(node, gpu(node+"-0"), gpu(node+"-1"))
		f.fillSlots(node, node+"-0")
		f.fillRectangles(node, node+"-1", 100, 95, 2)
	}
	return f
}

// fillSlots cuts 95 % of the window into turns and the SMs of each turn into shares; each share runs in one turn.
func (f *filler) fillSlots(node, slice string) {
	for time := int64(95); time > 5; {
		turn := 1 + f.random.Int64N(time)
		for sm := int64(100); sm > 20; {
			width := 10 + f.random.Int64N(sm-9)
			f.put(node, slice, width, turn, kube.Slots)
			sm -= width
		}
		time -= max(turn, 30) // bounds the number of shares
	}
}

// fillRectangles cuts a part of the slice in two, again and again, and fills the pieces.
func (f *filler) fillRectangles(node, slice string, sm, quota int64, cuts int) {
	if cuts == 0 || sm < 2 || quota < 2 {
		f.put(node, slice, sm, quota, kube.Rectangles)
		return
	}
	if f.random.IntN(2) == 0 {
		part := 1 + f.random.Int64N(sm-1)
		f.fillRectangles(node, slice, part, quota, cuts-1)
		f.fillRectangles(node, slice, sm-part, quota, cuts-1)
		return
	}
	part := 1 + f.random.Int64N(quota-1)
	f.fillRectangles(node, slice, sm, part, cuts-1)
	f.fillRectangles(node, slice, sm, quota-part, cuts-1)
}

func (f *filler) put(node, slice string, sm, quota int64, m kube.FitModel) {
	f.pods++
	f.cpuFree(f.add(spec{
		name: fmt.Sprintf("p%d", f.pods), node: node, slices: []string{slice}, sm: sm, quota: quota, memory: 100, packing: m,
	}))
}

// cpuFree takes the CPU away, which is not what the test is about.
func (f *filler) cpuFree(pod *v1.Pod) {
	delete(pod.Spec.Containers[0].Resources.Requests, v1.ResourceCPU)
}
