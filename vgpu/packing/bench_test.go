package packing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// bench is a busy fleet: pods of a few shapes come and go, and the load stays about constant.
type bench struct {
	random  *rand.Rand
	fleet   *Fleet
	packer  Packer
	pods    []*Pod // one for each shape
	keys    []string
	running []placedPod
	version int64
	mix     Mix
}

type placedPod struct {
	node int
	pod  *Pod
	plan Plan
}

// benchPods are 30 shapes: parts of the SMs with all of the time, parts of both, whole GPUs, and several GPUs.
func benchPods() []*Pod {
	var pods []*Pod
	add := func(sm, quota share.PerMille, gib share.Bytes, vgpus int, cpu MilliCPU) {
		sh := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: gib << 30}
		pods = append(pods, &Pod{Tenant: "team", CPU: cpu, RAM: 4 << 30, Request: share.Request{
			Terms: share.Terms{Slice: share.WholeGPU}, Containers: []share.Container{{VGPUs: vgpus, Share: sh}},
		}})
	}
	for _, sm := range []share.PerMille{60, 120, 240, 500} {
		for _, quota := range []share.PerMille{200, 400, 600, 800, 1000} {
			add(sm, quota, 2+share.Bytes(sm/100), 1, MilliCPU(1000+sm*quota/100))
		}
	}
	for _, sm := range []share.PerMille{100, 300, 460, 700, 800} {
		add(sm, 1000, 8, 1, 4000)
	}
	add(1000, 500, 30, 1, 6000)
	add(1000, 1000, 70, 1, 8000)
	add(1000, 1000, 40, 2, 16000)
	add(500, 1000, 20, 2, 8000)
	add(1000, 1000, 70, 4, 32000)
	return pods
}

func newBench(b *testing.B, nodes int) *bench {
	b.Helper()
	s := &bench{random: rand.New(rand.NewPCG(1, 2)), pods: benchPods()}
	for i, p := range s.pods {
		s.keys = append(s.keys, fmt.Sprint(i))
		s.mix.Add(ShapeOf(p), 10)
	}
	capacity := Capacity{Models: map[string]MilliGPU{}}
	all := make([]*Node, nodes)
	for i := range all {
		all[i] = gpuNode(fmt.Sprintf("node-%04d", i), 8)
		capacity.Add(CapacityOf(all[i], all[i].CPU), 1)
	}
	s.packer = Packer{Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: NewDemand(&s.mix, capacity)}}
	s.fleet = NewFleet(s.packer, nodes)
	for i, n := range all {
		s.set(i, n)
	}
	var load MilliGPU
	for load < capacity.GPU*7/10 {
		p := s.draw()
		if !s.place(p) {
			b.Fatal("the fleet is full before it is loaded")
		}
		load += ShapeOf(s.pods[p]).Milli * MilliGPU(ShapeOf(s.pods[p]).VGPUs)
	}
	return s
}

// draw picks a shape, each equally often.
func (s *bench) draw() int { return s.random.IntN(len(s.pods)) }

func (s *bench) set(i int, n *Node) {
	s.version++
	s.fleet.Set(i, n, s.version)
}

func (s *bench) place(p int) bool {
	pod := s.pods[p]
	best := s.fleet.Best(s.keys[p], pod, 1, func(i int) bool { return s.fleet.Node(i).CPU >= pod.CPU })
	if len(best) == 0 {
		return false
	}
	i := best[0].Node
	plan, _, _ := s.packer.Place(s.fleet.Node(i), pod)
	n := s.fleet.Node(i).Clone()
	n.Take(Slots, pod, plan)
	n.CPU -= pod.CPU
	s.set(i, n)
	s.running = append(s.running, placedPod{i, pod, plan})
	return true
}

// finish ends one of the pods that run.
func (s *bench) finish() {
	i, last := s.random.IntN(len(s.running)-1), len(s.running)-1
	done := s.running[i]
	s.running[i] = s.running[last]
	s.running = s.running[:last]
	old := s.fleet.Node(done.node)
	n := NewNode(old.Name, old.Slices, old.CPU+done.pod.CPU, old.RAM)
	gone := map[int]share.Share{}
	for c, picks := range done.plan {
		for _, p := range picks {
			gone[p.Slice] = done.pod.Request.Containers[c].Share
		}
	}
	for i := range old.Loads {
		for _, r := range old.Loads[i].Residents() {
			if sh, ok := gone[i]; ok && sh == r.Share {
				delete(gone, i)
				continue
			}
			n.Loads[i].Add(r)
		}
	}
	s.set(done.node, n)
}

func BenchmarkPlaceAmong4000Slices(b *testing.B) {
	s := newBench(b, 500)
	missed := 0 // pods for which there was no room
	b.ReportAllocs()
	for b.Loop() {
		if s.place(s.draw()) {
			s.finish()
		} else {
			missed++
		}
	}
	b.ReportMetric(float64(missed)/float64(b.N), "missed/op")
}

// BenchmarkAdmit asks a half-full slice about each shape in turn, as the ranking of a node does.
func BenchmarkAdmit(b *testing.B) {
	s := newBench(b, 4)
	var asks []ShareRequest
	for _, p := range s.pods {
		asks = append(asks, ShareRequest{Tenant: p.Tenant, Terms: p.Request.Terms, Share: p.Request.Containers[0].Share})
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		n := s.fleet.Node(i % 4)
		s.packer.Rules.Admit(&n.Slices[i%8], &n.Loads[i%8], asks[i%len(asks)])
		i++
	}
}
