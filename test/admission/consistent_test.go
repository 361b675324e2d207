package admission_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

const generated = 600 // pods

// testConsistent: the policies refuse exactly the pods that the scheduler would refuse, and complete the others as package kube does.
func (c *cluster) testConsistent(t *testing.T) {
	refused, missed, unlike := c.compare(t)
	for _, err := range missed {
		t.Errorf("accepted, though package kube says %v", err)
	}
	for _, diff := range unlike {
		t.Errorf("-completed by package kube +by the policies:\n%s", diff)
	}
	if refused < generated/4 || refused > generated*3/4 {
		t.Errorf("%d of %d pods are bad: the comparison shows little", refused, generated)
	}
}

// compare generates pods and returns how many of them package kube refuses, an error for each of those that the API server accepts, and a
// difference for each pod that both accept and complete differently. It fails the test if the API server refuses a pod that package kube accepts.
func (c *cluster) compare(t *testing.T) (refused int, missed []error, unlike []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for range generated {
		p := generate(random)
		completed := p.DeepCopy()
		kube.Complete(completed)
		request, asks, want := kube.RequestOf(completed)
		if want == nil && asks {
			want = request.ValidateDevices()
		}
		stored, got := c.try("slo", p)
		switch {
		case want == nil && got != nil:
			t.Errorf("refused, though package kube accepts it: %v\n%v %v", got, p.Annotations, p.Spec)
		case want != nil && got == nil:
			missed = append(missed, fmt.Errorf("%w: %v %v", want, p.Annotations, p.Spec.Containers[0].Resources.Limits))
		case want == nil:
			if diff := cmp.Diff(asked(completed), asked(stored)); diff != "" {
				unlike = append(unlike, diff)
			}
		}
		if want != nil {
			refused++
		}
	}
	return refused, missed, unlike
}

// asked returns the shares that a pod requests, and its scheduler.
func asked(p *v1.Pod) []string {
	all := []string{p.Spec.SchedulerName}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		all = append(all, c.Name+" "+numbers(c.Resources.Limits)+" "+numbers(c.Resources.Requests))
	}
	return all
}

// generate returns a valid pod with up to three changes.
func generate(random *rand.Rand) *v1.Pod {
	p := pod()
	if random.IntN(4) == 0 {
		one(random, structures)(p)
	}
	for range random.IntN(4) {
		field := one(random, fields)
		one(random, []change{limits(field.name + "=" + one(random, field.values)), limits(field.name + "=" + one(random, field.usual))})(p)
	}
	for range random.IntN(3) {
		word := one(random, words)
		one(random, []change{says(word.name, one(random, word.values)), says(word.name, one(random, word.usual))})(p)
	}
	return p
}

func one[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

var structures = []change{
	another(container("second", "sm=50", "mem=10")),
	another(container("second", "vgpu=1")),
	another(container("second", "sm=64", "mem=64", "vgpu=64")),
	sidecar(container("model", "sm=10", "mem=10", "quota=50")),
	sidecar(container("model", "mem=10")),
	initially(container("init", "sm=10", "mem=10")),
	initially(container("init", "cpu=1")),
	limits("smm=1"),
	limits("nvidia.com/gpu=1"),
}

// ends holds values to try for a field: usual ones, and ones at and beyond the limits of what is allowed.
type ends struct {
	name          string
	usual, values []string
}

var fields = []ends{
	{"sm", []string{"48", "100", "200"}, []string{"", "0", "1", "23", "101", "150", "6400", "6401", "6500", "1k", "24e3", "9223372036854775807"}},
	{"quota", []string{"40", "100"}, []string{"", "0", "1", "99", "101", "100000m", "9223372036854775807"}},
	{"mem", []string{"1024", "4"}, []string{"", "0", "1", "3", "8Gi", "1Gi", "1073741825", "9223372036854775807"}},
	{"vgpu", []string{"1", "2"}, []string{"", "0", "3", "8", "64", "65", "9223372036854775807"}},
	{"sm-time", []string{"2400"}, []string{"", "0", "960", "4800", "10000"}},
}

var words = []ends{
	{"sm-limit", []string{"24", "48", "100"}, []string{"", "0", "1", "12", "23", "99", "101", "048", "+48", "-5", "48%", " 48", "48\n", "1e1"}},
	{"quota-limit", []string{"80", "100"}, []string{"", "0", "40", "39", "101", "080", "x", "100 "}},
	{"mem", []string{"1Gi", "4Mi", "8Gi"}, []string{"", "16", "1.5Gi", "16GB", "0Gi", "01Gi", "1024Ti", "1025Ti", "9999999999Ti", "10000000000Mi", "8Gi\n", " 8Gi", "\u0661Gi"}},
	{"class", []string{"slo", "best-effort"}, []string{"", "gold", "SLO", "best-effort "}},
	{"isolation", []string{"mps", "elastic", "exclusive", "swap"}, []string{"", "Swap", "MPS", "mps "}},
	{"enforcement", []string{"strict", "best-effort"}, []string{"", "none", "strict\n"}},
	{"slice", []string{"gpu", "mig", "1g.18gb"}, []string{"", "GPU", "8g.1gb", "0g.1gb", "1g.01gb", "1g.12345gb", "1g.10gb+me.all", "1g.10gb+gfx", "1g.24gb-me", "1g.24gb-gfx", "mig\n", "1gx18gb"}},
	{"slice.main", []string{"gpu", "mig", "3g.40gb"}, []string{"", "GPU", "8g.1gb", "mig\n", " mig", "1g.12345gb"}},
	{"slice.second", []string{"1g.18gb"}, []string{"", "half"}},
	{"slice.init", []string{"mig"}, []string{""}},
	{"workload", []string{"resnet"}, []string{"", "a", "-a", "a-", "a.b_c-d", "a/b", "ä", "a\n", name63, name63 + "x"}},
	{"anti-affinity", []string{"resnet"}, []string{"", "a", "-a", "a-", "a.b_c-d", "a/b", "ä", "a\n", name63, name63 + "x"}},
	{"packing", []string{"spread", "binpack"}, []string{"", "Spread", " spread", "dense", "spread\n"}},
	{"weights", []string{digest + "=2634Mi", digest + "=1Gi, sha256:" + zeros + "=1Ti"}, []string{"", ",", digest, digest + "=", digest + "=0Mi", digest + "=01Mi",
		digest + "=1024Ti", digest + "=1025Ti", digest + "=9999999999Mi", digest + "=1Mi,", digest + "=1Mi\n", "\u00a0" + digest + "=1Mi\u2003", digest + " =1Mi",
		digest + "=1Mi," + digest + "=1Mi", "sha256:" + zeros[1:] + "=1Mi", "sha256:" + zeros + "0=1Mi", "sha512:" + zeros + "=1Mi", "sha256:A" + zeros[1:] + "=1Mi", nine,
		digest + "=1Mi=2Mi"}},
	{"model", []string{"A100", "A100,H200"}, []string{"", ",", "A100,", "A100, A100", " A100\t", "NVIDIA H100 80GB HBM3", "A100/B", "-A", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p",
		"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,p", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", name63, name63 + "x", "\u00a0A100\u2003", "A\u00a0100", repeated(63), repeated(64), repeated(65)}},
}

var zeros = strings.Repeat("0", 64)

const name63 = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0"

// repeated returns a list that contains the same model n times.
func repeated(n int) string {
	text := "A"
	for range n - 1 {
		text += ",A"
	}
	return text
}
