package packing

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// reference is policy D as docs/packing.md defines it: in float64, slowly, from whole nodes, sharing no code with Balance.
// Costs are in milli-GPU.
type reference struct {
	weights map[Shape]float64 // popularity; they add up to one
	rho     float64           // milli-CPU for each milli-GPU
	press   map[string]float64
	w       map[int]float64 // W, as far as it has been needed
}

func (r *reference) stranded(free int) float64 {
	if w, ok := r.w[free]; ok {
		return w
	}
	sum, weight := 0.0, 0.0
	for s, p := range r.weights {
		if s.VGPUs == 1 && int(s.Milli) <= free {
			sum += p * r.stranded(free-int(s.Milli))
			weight += p
		}
	}
	w := float64(free)
	if weight > 0 {
		w = sum / weight
	}
	r.w[free] = w
	return w
}

func (r *reference) fragmentation(n *Node) float64 {
	var sum float64
	for s, p := range r.weights {
		var usable float64
		able := 0
		for i := range n.Slices {
			accepted := s.Models == "" || strings.Contains(s.Models, n.Slices[i].Model)
			kind := s.Kind == "mig" == (n.Slices[i].Profile != "")
			room := n.Slices[i].Memory - n.Loads[i].Memory()
			if accepted && kind && room >= s.Memory && referenceLargest(n, i) >= float64(s.Milli) {
				usable += referenceFree(n, i)
				able++
			}
		}
		if able < s.VGPUs || n.CPU < s.CPU || n.RAM < s.RAM {
			usable = 0
		}
		sum += p * (referenceTotal(n) - usable)
	}
	return sum
}

func (r *reference) shortage(n *Node) float64 {
	return max(0, referenceTotal(n)-max(0, float64(n.CPU))/r.rho)
}

func referenceFree(n *Node, i int) float64 {
	if !n.Slices[i].Healthy {
		return 0
	}
	return 1000 - float64(n.Loads[i].Requested())/1000
}

// referenceLargest is what one pod could get of a slice: a pod that asks for all of it gets it alone.
func referenceLargest(n *Node, i int) float64 {
	if n.Loads[i].Empty() {
		return referenceFree(n, i)
	}
	return min(referenceFree(n, i), 999)
}

func referenceTotal(n *Node) (sum float64) {
	for i := range n.Slices {
		sum += referenceFree(n, i)
	}
	return sum
}

func (r *reference) cost(before *Node, pod *Pod, plan Plan) float64 {
	after := before.Clone()
	after.Take(Slots, pod, plan)
	after.CPU -= pod.CPU
	after.RAM -= pod.RAM
	cost := r.fragmentation(after) - r.fragmentation(before) + r.shortage(after) - r.shortage(before)
	for i := range before.Slices {
		cost += (r.stranded(int(referenceLargest(after, i))) - r.stranded(int(referenceLargest(before, i)))) / 2
	}
	for c, picks := range plan {
		for _, p := range picks {
			cost += float64(pod.Request.Containers[c].Share.RequestArea()) / 1000 * r.press[before.Slices[p.Slice].Model]
		}
	}
	return cost
}

// randomWorld is a mix of eight shapes, some of them particular about model or kind, and the reference for it.
func randomWorld(random *rand.Rand) (*Demand, *reference, []*Pod) {
	var m Mix
	c := Capacity{GPU: 600_000, FreeGPU: 300_000, CPU: 1 << 40, FreeCPU: 1 << 39, Models: map[string]MilliGPU{"A100": 500_000, "H200": 100_000}}
	c.CPU, c.FreeCPU = 10_000_000, 10_000_000
	var pods []*Pod
	counts := map[Shape]float64{}
	var total, gpu, cpu float64
	for range 8 {
		pod := podOf(withMemory(fixed(share.PerMille(5+random.IntN(96)), 100), share.Bytes(1+random.IntN(3))))
		pod.Request.Containers[0].VGPUs = 1 + random.IntN(5)/4
		pod.CPU = MilliCPU(random.IntN(16)) * 1000
		pod.RAM = share.Bytes(random.IntN(64)) << 30
		pod.Request.Slice = []string{"gpu", "gpu", "mig"}[random.IntN(3)]
		pod.Request.Models = [][]string{nil, nil, {"A100"}, {"A100", "H200"}, {"H200"}}[random.IntN(5)]
		pods = append(pods, pod)
		s, n := ShapeOf(pod), 20+random.IntN(20)
		m.Add(s, n)
		counts[s] += float64(n)
		total += float64(n)
		gpu += float64(n) * float64(s.VGPUs) * float64(s.Milli)
		cpu += float64(n) * float64(s.CPU)
	}
	r := &reference{weights: map[Shape]float64{}, w: map[int]float64{}, rho: cpu / gpu, press: map[string]float64{}}
	for s, n := range counts {
		r.weights[s] = n / total
		models := strings.Split(s.Models, ",")
		able := 0.0
		for _, name := range models {
			able += float64(c.Models[name])
		}
		for _, name := range models {
			if name != "" {
				r.press[name] += n * float64(s.VGPUs) * float64(s.Milli) / gpu * float64(c.GPU) / able
			}
		}
	}
	for name, able := range c.Models { // what is taken for granted: one pod of eight GPUs a model
		r.press[name] += 8000 / gpu * float64(c.GPU) / float64(able)
	}
	return NewDemand(&m, c), r, pods
}

// Every rank agrees with the formulas, up to the rounding of S to whole milli-GPUs and of weights to millionths.
func TestBalanceAgreesWithTheFormulas(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	compared := 0
	for range 60 {
		demand, ref, pods := randomWorld(random)
		if math.Abs(float64(demand.cpuRatio)/1000-ref.rho) > 0.001 {
			t.Fatalf("ρ = %d, want %f a milli-GPU", demand.cpuRatio, ref.rho)
		}
		packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: demand}}
		for range 60 {
			n := randomNode(random, Slots)
			n.CPU, n.RAM = MilliCPU(random.IntN(40_000)), share.Bytes(random.IntN(128))<<30
			pod := pods[random.IntN(len(pods))]
			plan, rank, refusal := packer.Place(n, pod)
			if refusal != Admitted {
				continue
			}
			compared++
			got, want := float64(rank>>tieBits)/float64(one), ref.cost(n, pod, plan)
			if math.Abs(got-want) > 2+math.Abs(want)*1e-3 {
				t.Fatalf("cost %f, want %f\n%+v\n%+v\n%+v", got, want, pod, plan, n)
			}
			checkBest(t, ref, packer.Rules, n, pod, want)
		}
	}
	if compared < 500 {
		t.Errorf("only %d ranks compared", compared)
	}
}

// checkBest tries every slice for a pod of one vGPU: none is cheaper than the one chosen.
func checkBest(t *testing.T, ref *reference, rules Rules, n *Node, pod *Pod, chosen float64) {
	t.Helper()
	if pod.Request.Containers[0].VGPUs > 1 {
		return
	}
	for i := range n.Slices {
		class, refusal := rules.Admit(&n.Slices[i], &n.Loads[i], ShareRequest{pod.Tenant, pod.Request.Terms, pod.Request.Containers[0].Share})
		if refusal == Admitted {
			if c := ref.cost(n, pod, Plan{{{Slice: i, Class: class}}}); c < chosen-4-math.Abs(c)*1e-3 {
				t.Fatalf("slice %d costs %f, chosen was one of %f", i, c, chosen)
			}
		}
	}
}
