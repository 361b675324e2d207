package packing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// randomNode returns a node with one to four slices, whole GPUs and MIG instances, some of which are in use.
func randomNode(random *rand.Rand, m Model) *Node {
	n := NewNode("n", nil, 64000, 256<<30)
	for i := range 1 + random.IntN(4) {
		s := gpu(string(rune('a'+i)), []string{"A100", "H200"}[random.IntN(4)/3])
		if random.IntN(3) == 0 {
			s.Profile = "1g.10gb"
			s.Device = []string{"d0", "d1"}[random.IntN(2)]
		}
		s.Healthy = random.IntN(10) > 0
		s.MaxShares = 2 + random.IntN(3)
		s.Reserve = []share.PerMille{0, 50}[random.IntN(2)]
		s.Memory = share.Bytes(4+random.IntN(3)) << 30
		n.Slices, n.Loads = append(n.Slices, s), append(n.Loads, Load{})
	}
	packer := bestFit(m)
	for range random.IntN(4) {
		pod := randomPod(random)
		if random.IntN(6) == 0 {
			pod.Tenant = "b"
		}
		if plan, _, refusal := packer.Place(n, pod); refusal == Admitted {
			if random.IntN(3) == 0 {
				pod = idlePod(pod)
			}
			n.Take(m, pod, plan)
		}
	}
	return n
}

// idlePod returns the pod after it has given up its SM-time.
func idlePod(pod *Pod) *Pod {
	out := *pod
	out.Request.Containers = slices.Clone(pod.Request.Containers)
	for i := range out.Request.Containers {
		out.Request.Containers[i].Share = idle(out.Request.Containers[i].Share)
	}
	return &out
}

// randomPod returns a pod with one to three containers of one or two vGPUs.
func randomPod(random *rand.Rand) *Pod {
	pod := podOf()
	for range 1 + random.IntN(3) {
		c := share.Container{VGPUs: 1 + random.IntN(2), Share: fixed(share.PerMille(10+10*random.IntN(8)), 100)}
		switch random.IntN(5) {
		case 0:
			c.Share = fixed(100, 100)
		case 1:
			c.Share.SMLimit = min(1000, c.Share.SMRequest+200)
		case 2, 3:
			c.VGPUs = 1
			c.Share.QuotaRequest = share.PerMille(200 + 100*random.IntN(7))
			c.Share.QuotaLimit = c.Share.QuotaRequest
		}
		c.Share = withMemory(c.Share, share.Bytes(1+random.IntN(3)))
		c.Slice = []string{"", "", "", share.WholeGPU, "1g.10gb"}[random.IntN(5)]
		c.Slice = []string{"", "", "", share.WholeGPU, "1g.10gb"}[random.IntN(5)]
		pod.Request.Containers = append(pod.Request.Containers, c)
	}
	pod.Request.Slice = []string{share.WholeGPU, share.WholeGPU, share.AnyMIG}[random.IntN(3)]
	if random.IntN(4) == 0 {
		pod.Request.Models = []string{"A100"}
	}
	return pod
}

// exists tries every slice for every vGPU, in every order.
func exists(rules Rules, n *Node, pod *Pod, c, v int, used map[string]bool) bool {
	if c == len(pod.Request.Containers) {
		return true
	}
	container := pod.Request.Containers[c]
	if v == container.VGPUs {
		return exists(rules, n, pod, c+1, 0, map[string]bool{})
	}
	ask := ShareRequest{Tenant: pod.Tenant, Terms: pod.Request.TermsOf(c), Share: container.Share}
	for i := range n.Slices {
		device := n.Slices[i].Device
		class, refusal := rules.Admit(&n.Slices[i], &n.Loads[i], ask)
		if refusal != Admitted || used[device] {
			continue
		}
		next := n.Clone()
		next.Loads[i].Add(Resident{Tenant: pod.Tenant, Model: rules.Model, Class: class, Share: container.Share, Weights: pod.Request.Weights})
		used[device] = true
		found := exists(rules, next, pod, c, v+1, used)
		delete(used, device)
		if found {
			return true
		}
	}
	return false
}

func TestPlaceSucceedsIffAnAssignmentExists(t *testing.T) {
	for _, m := range []Model{Slots, Rectangles} {
		t.Run(string(m), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 1))
			packer := bestFit(m)
			placed, refusals := 0, map[Refusal]int{}
			for i := range 3000 {
				n, pod := randomNode(random, m), randomPod(random)
				plan, _, refusal := packer.Place(n, pod)
				if want := exists(packer.Rules, n, pod, 0, 0, map[string]bool{}); want != (refusal == Admitted) {
					t.Fatalf("set %d: Place says %q, an assignment exists: %v\n%+v\n%+v", i, refusal, want, pod, n)
				}
				if refusal == Admitted {
					placed++
					checkPlan(t, packer.Rules, n, pod, plan)
				} else {
					checkRefusal(t, packer, n, pod, refusal)
				}
				refusals[refusal]++
			}
			if placed < 500 || len(refusals) < 8 {
				t.Errorf("the cases are one-sided: %v", refusals)
			}
		})
	}
}

// checkPlan follows the plan one vGPU at a time: each must be admitted in the planned class.
func checkPlan(t *testing.T, rules Rules, n *Node, pod *Pod, plan Plan) {
	t.Helper()
	n = n.Clone()
	if len(plan) != len(pod.Request.Containers) {
		t.Fatalf("%d rows for %d containers", len(plan), len(pod.Request.Containers))
	}
	for c, container := range pod.Request.Containers {
		devices := map[string]bool{}
		for _, pick := range plan[c] {
			s := &n.Slices[pick.Slice]
			class, refusal := rules.Admit(s, &n.Loads[pick.Slice], ShareRequest{Tenant: pod.Tenant, Terms: pod.Request.TermsOf(c), Share: container.Share})
			if refusal != Admitted || class != pick.Class || devices[s.Device] {
				t.Fatalf("container %d on slice %d: %q, class %q for %q, device used twice: %v", c, pick.Slice, refusal, class, pick.Class, devices[s.Device])
			}
			devices[s.Device] = true
			n.Loads[pick.Slice].Add(Resident{Tenant: pod.Tenant, Model: rules.Model, Class: class, Share: container.Share})
		}
		if len(devices) != container.VGPUs {
			t.Fatalf("container %d has %d devices, wants %d", c, len(devices), container.VGPUs)
		}
	}
}

// checkRefusal checks that a pod is reported as never fitting only if it does not fit on the empty node either.
func checkRefusal(t *testing.T, packer Packer, n *Node, pod *Pod, refusal Refusal) {
	t.Helper()
	empty := NewNode(n.Name, n.Slices, n.CPU, n.RAM)
	_, _, bare := packer.Place(empty, pod)
	if refusal.NeverFits() && bare == Admitted {
		t.Fatalf("%q, but the pod fits on the empty node", refusal)
	}
	if !refusal.NeverFits() && bare.NeverFits() {
		t.Fatalf("%q, but on the empty node %q", refusal, bare)
	}
}

func TestPlaceRepeatsItselfAndChangesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for _, m := range []Model{Slots, Rectangles} {
		packer := bestFit(m)
		if m == Rectangles {
			packer.Ranker = BestArea{}
		}
		for range 500 {
			n, pod := randomNode(random, m), randomPod(random)
			before := residents(n)
			plan, rank, refusal := packer.Place(n, pod)
			if diff := cmp.Diff(before, residents(n)); diff != "" {
				t.Fatal("Place changed the node:", diff)
			}
			other := permuted(random, n)
			for _, again := range []*Node{n, other} {
				p, r, f := packer.Place(again, pod)
				if diff := cmp.Diff(plan, p); diff != "" || r != rank || f != refusal {
					t.Fatalf("first %v %d %q, then %v %d %q", plan, rank, refusal, p, r, f)
				}
			}
		}
	}
}

func residents(n *Node) (out [][]Resident) {
	for i := range n.Loads {
		out = append(out, append([]Resident{}, n.Loads[i].Residents()...))
	}
	return out
}

// permuted returns the node with the same shares, added in another order.
func permuted(random *rand.Rand, n *Node) *Node {
	out := NewNode(n.Name, n.Slices, n.CPU, n.RAM)
	for i := range n.Loads {
		for _, j := range random.Perm(len(n.Loads[i].Residents())) {
			out.Loads[i].Add(n.Loads[i].Residents()[j])
		}
	}
	return out
}
