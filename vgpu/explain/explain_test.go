package explain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gib = 1024 * share.MiB

func gpu(id, model string, classes ...share.Isolation) packing.Slice {
	if classes == nil {
		classes = []share.Isolation{share.Exclusive, share.MPS, share.Elastic}
	}
	return packing.Slice{ID: packing.SliceID(id), Device: id, Model: model, SMs: 100, Memory: 40 * gib, Classes: classes,
		Healthy: true, Reserve: 50, MaxShares: 16}
}

func nodeOf(name string, s ...packing.Slice) *packing.Node {
	return packing.NewNode(name, s, 64000, 512*gib)
}

func shareOf(sm, quota share.PerMille, memory share.Bytes) share.Share {
	return share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: memory}
}

func podOf(sh share.Share, vgpus int) *packing.Pod {
	return &packing.Pod{Tenant: "ml", Request: share.Request{
		Terms:      share.Terms{Priority: share.BestEffort, Slice: share.WholeGPU, Enforcement: share.Strict},
		Containers: []share.Container{{Name: "main", VGPUs: vgpus, Share: sh}},
	}}
}

func question(pod *packing.Pod, nodes ...*packing.Node) *Search {
	return &Search{Packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.BestArea{}}, Nodes: nodes, Pod: pod}
}

func occupied(n *packing.Node, slice int, tenant string, class share.Isolation, sh share.Share) *packing.Node {
	n.Loads[slice].Add(packing.Resident{Tenant: tenant, Model: packing.Slots, Class: class, Share: sh})
	return n
}

func text(changes []Change) string {
	var lines []string
	for _, c := range changes {
		var edits []string
		for _, e := range c.Edits {
			edits = append(edits, fmt.Sprintf("%s %s>%s", e.Field[strings.IndexAny(e.Field, "/")+1:], e.From, e.To))
		}
		lines = append(lines, strings.Join(edits, " and ")+" @"+c.Node)
	}
	return strings.Join(lines, "; ")
}

func TestChanges(t *testing.T) {
	half := shareOf(500, 1000, 10*gib)
	terms := func(set func(*share.Terms)) *packing.Pod {
		pod := podOf(half, 1)
		set(&pod.Request.Terms)
		return pod
	}
	stages := func(kinds ...string) *packing.Pod {
		pod := podOf(shareOf(1000, 1000, 10*gib), 1)
		pod.Request.Containers = nil
		for c, kind := range kinds {
			pod.Request.Containers = append(pod.Request.Containers,
				share.Container{Name: string(rune('a' + c)), VGPUs: 1, Share: shareOf(1000, 1000, 10*gib), Slice: kind})
		}
		return pod
	}
	instance := gpu("m", "A100")
	instance.Device, instance.Profile = "d", "1g.10gb"
	twin := instance
	twin.ID = "m2"
	for name, c := range map[string]struct {
		pod  *packing.Pod
		node *packing.Node
		want string
	}{
		"it fits":         {podOf(half, 1), nodeOf("n", gpu("a", "A100")), ""},
		"too much room":   {podOf(shareOf(500, 1000, 41*gib), 1), nodeOf("n", gpu("a", "A100")), "mem 41984>40960 @n"},
		"too much in two": {podOf(shareOf(1000, 1000, 41*gib), 2), nodeOf("n", gpu("a", "A100"), gpu("b", "A100")), "mem 83968>81920 @n"},
		"a hundredth": {podOf(shareOf(1000, 100, gib), 1), occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, shareOf(1000, 940, gib)),
			"quota 10>1 @n"},
		"memory is gone": {podOf(half, 1), occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, shareOf(100, 500, 35*gib)), "mem 10240>5120 @n"},
		"time is gone": {podOf(half, 1), occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, shareOf(600, 1000, gib)),
			"sm 50>40 @n"},
		"turns are gone": {podOf(shareOf(600, 500, gib), 1), occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, shareOf(500, 600, gib)),
			"sm 60>50 @n; quota 50>35 @n"},
		"another model":                      {terms(func(t *share.Terms) { t.Models = []string{"H200"} }), nodeOf("n", gpu("a", "A100")), "model H200>A100,H200 @n"},
		"another class":                      {terms(func(t *share.Terms) { t.Isolation = share.Elastic }), nodeOf("n", gpu("a", "A100", share.MPS)), "isolation elastic> @n; enforcement strict>best-effort @n"},
		"another kind":                       {terms(func(t *share.Terms) { t.Slice = share.AnyMIG }), nodeOf("n", gpu("a", "A100")), "slice mig>gpu @n"},
		"another kind for a container":       {stages("gpu", "7g.80gb"), nodeOf("n", gpu("a", "A100"), instance), "slice.b 7g.80gb>1g.10gb @n"},
		"another kind for those without one": {stages("", "1g.10gb"), nodeOf("n", instance, twin), "slice gpu>1g.10gb @n"},
		"fewer GPUs":                         {podOf(shareOf(1000, 1000, gib), 3), nodeOf("n", gpu("a", "A100"), gpu("b", "A100")), "vgpu 3>2 and sm 300>200 and mem 3072>2048 @n"},
		"no part of two": {podOf(shareOf(1000, 1000, gib), 2), occupied(nodeOf("n", gpu("a", "A100"), gpu("b", "A100")), 0, "ml", share.MPS, shareOf(100, 1000, gib)),
			"vgpu 2>1 and sm 200>100 and mem 2048>1024 @n"},
		"two at once": {podOf(half, 1), occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, shareOf(600, 1000, 35*gib)),
			"mem 10240>5120 and sm 50>40 @n"},
		"nothing helps": {podOf(half, 1), occupied(nodeOf("n", gpu("a", "A100")), 0, "web", share.MPS, half), ""},
		"the limit": {podOf(share.Share{SMRequest: 500, SMLimit: 1000, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}, 1),
			occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.Elastic,
				share.Share{SMRequest: 300, SMLimit: 1000, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}), "sm 50>46 and sm-limit 100>50 @n"},
		"no limit": {podOf(share.Share{SMRequest: 400, SMLimit: 900, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}, 1),
			occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, shareOf(300, 1000, gib)), "sm-limit 90>40 @n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(question(c.pod, c.node).Changes()); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSlices(t *testing.T) {
	n := nodeOf("n", gpu("a", "A100"), gpu("b", "H200"), gpu("c", "H200"))
	n.Slices[1].Healthy = false
	occupied(n, 2, "web", share.MPS, shareOf(100, 100, gib))
	pod := podOf(shareOf(500, 1000, gib), 1)
	pod.Request.Models = []string{"H200"}
	got := SliceRefusals(packing.NewRules(packing.Slots), n, pod)
	for i, want := range []packing.Refusal{packing.WrongModel, packing.Unhealthy, packing.OtherTenant} {
		if got[i][0] != want {
			t.Errorf("slice %d: %v, want %v", i, got[i][0], want)
		}
	}
}

// Every change of one quantity lets the pod in, and one percent less of it would not: checked by trying all values.
func TestSmallest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 8))
	some := func() share.PerMille { return share.PerMille(1+random.IntN(10)) * 100 }
	changed := 0
	for range 300 {
		n := nodeOf("n", gpu("a", "A100"), gpu("b", "A100"))
		rules := packing.NewRules(packing.Slots)
		for range random.IntN(8) {
			sh, at := shareOf(some(), some(), share.Bytes(1+random.IntN(20))*gib), random.IntN(2)
			class := share.MPS
			ask := packing.ShareRequest{Tenant: "ml", Terms: share.Terms{Slice: share.WholeGPU}, Share: sh}
			if got, refusal := rules.Admit(&n.Slices[at], &n.Loads[at], ask); refusal == packing.Admitted && got == class {
				occupied(n, at, "ml", class, sh)
			}
		}
		q := question(podOf(shareOf(some(), some(), share.Bytes(1+random.IntN(45))*gib), 1), n)
		for _, c := range q.singleReductions() {
			if len(c.Edits) != 1 || c.Edits[0].Field == share.FieldMemory {
				continue
			}
			changed++
			checkSmallest(t, q, c)
		}
	}
	if changed < 50 {
		t.Fatalf("only %d changes were checked", changed)
	}
}

func checkSmallest(t *testing.T, q *Search, c Change) {
	t.Helper()
	axis := map[string]int{share.FieldSM: 1, share.FieldQuota: 2, share.FieldSMLimit: 3, share.FieldQuotaLimit: 4}[c.Edits[0].Field]
	for _, s := range q.reductions(q.Pod.Request, 0)[axis] {
		fits, reached := q.findNode(s.request) != nowhere, s.edits[0].To == c.Edits[0].To
		if fits != reached {
			t.Fatalf("%s: %s %s fits: %v", text([]Change{c}), s.edits[0].Field, s.edits[0].To, fits)
		}
		if reached {
			return
		}
	}
	t.Fatalf("%s is no step", text([]Change{c}))
}
