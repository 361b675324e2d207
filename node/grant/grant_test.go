package grant

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newBook(slices ...string) *Book {
	b := NewBook("n")
	var list []packing.Slice
	for _, id := range slices {
		list = append(list, packing.Slice{
			ID: packing.SliceID(id), Device: id, Model: "A100", SMs: 108, Memory: 80 << 30,
			Classes: []share.Isolation{share.Exclusive, share.MPS}, Healthy: true, Reserve: 50, MaxShares: 16,
		})
	}
	b.SetSlices(Slices{All: list})
	return b
}

// podOf is a pod with one container main, placed on a slice.
func podOf(uid, slice string, sm, quota int64) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: "pod-" + uid}}
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
		kube.ResourceSM: *resource.NewQuantity(sm, resource.DecimalSI), kube.ResourceQuota: *resource.NewQuantity(quota, resource.DecimalSI),
		kube.ResourceMemory: *resource.NewQuantity(1024, resource.DecimalSI),
	}}}}
	kube.Complete(pod)
	place(pod, placementFor(pod, slice, sm, quota))
	return pod
}

func placementFor(pod *v1.Pod, slice string, sm, quota int64) kube.Placement {
	s := share.Share{
		SMRequest: share.PerMille(sm * 10), SMLimit: share.PerMille(sm * 10), QuotaRequest: share.PerMille(quota * 10),
		QuotaLimit: share.PerMille(quota * 10), Memory: 1 << 30,
	}
	return kube.Placement{Node: "n", UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: slice, Class: share.MPS, Priority: share.BestEffort, Share: s}},
	}}}
}

func place(pod *v1.Pod, p kube.Placement) {
	text, err := kube.EncodePlacement(p)
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{kube.AnnotationPlacement: text}
}

// TestInUse: a slice that others use takes nobody new; who is there keeps what he has, and may start again.
func TestInUse(t *testing.T) {
	b := newBook("A", "B")
	if _, _, refusal := b.Admit(claim(podOf("old", "A", 20, 20), "g0-0"), start); refusal != nil {
		t.Fatal(refusal)
	}
	free := b.slices
	b.SetSlices(Slices{All: free.All, Used: map[string]string{"A": "pod x/y"}})
	if _, _, refusal := b.Admit(claim(podOf("old", "A", 20, 20), "g0-0"), start); refusal != nil {
		t.Errorf("started again: %v", refusal)
	}
	if _, _, refusal := b.Admit(claim(podOf("new", "A", 20, 20), "g0-1"), start); refusal == nil || refusal.Reason != InUse ||
		!strings.Contains(refusal.Text, "pod x/y") || !strings.Contains(refusal.Text, "devices of the agent's configuration") {
		t.Errorf("a new one: %v", refusal)
	}
	if _, _, refusal := b.Admit(claim(podOf("beside", "B", 20, 20), "g0-2"), start); refusal != nil {
		t.Errorf("on another slice: %v", refusal)
	}
	running := podOf("running", "A", 20, 20)
	b.SetSlices(Slices{All: free.All, Used: map[string]string{"A": PodUser(running.Namespace, running.Name)}})
	if _, _, refusal := b.Admit(claim(running, "g0-3"), start); refusal != nil {
		t.Errorf("the user itself: %v", refusal)
	}
	b.SetSlices(free)
	if _, _, refusal := b.Admit(claim(podOf("new", "A", 20, 20), "g0-1"), start); refusal != nil {
		t.Errorf("once it is free: %v", refusal)
	}
}

func claim(pod *v1.Pod, deviceIDs ...string) Claim {
	return Claim{Pod: pod, Container: "main", DeviceIDs: deviceIDs}
}

func TestAdmit(t *testing.T) {
	foreign := podOf("p", "A", 50, 50)
	place(foreign, placementFor(podOf("other", "A", 50, 50), "A", 50, 50))
	elsewhere := podOf("p", "A", 50, 50)
	p := placementFor(elsewhere, "A", 50, 50)
	p.Node = "m"
	place(elsewhere, p)
	larger := podOf("p", "A", 50, 50)
	place(larger, placementFor(larger, "A", 90, 50))
	unplaced := podOf("p", "A", 50, 50)
	unplaced.Annotations = nil
	garbage := podOf("p", "A", 50, 50)
	garbage.Annotations[kube.AnnotationPlacement] = "{"
	for name, test := range map[string]struct {
		claim Claim
		want  Reason // empty: granted
	}{
		"placed":                 {claim(podOf("p", "A", 50, 50), "g0-1"), ""},
		"fits beside":            {claim(podOf("p", "A", 60, 40), "g0-1"), ""},
		"no placement":           {claim(unplaced, "g0-1"), NotPlaced},
		"somebody else's":        {claim(foreign, "g0-1"), Forged},
		"another node":           {claim(elsewhere, "g0-1"), Forged},
		"more than asked for":    {claim(larger, "g0-1"), Forged},
		"unreadable":             {claim(garbage, "g0-1"), Forged},
		"two device IDs for one": {claim(podOf("p", "A", 50, 50), "g0-1", "g0-2"), Forged},
		"unknown slice":          {claim(podOf("p", "C", 50, 50), "g0-1"), UnknownSlice},
		"no room":                {claim(podOf("p", "A", 60, 90), "g0-1"), DoesNotFit},
		"room on another":        {claim(podOf("p", "B", 60, 90), "g0-1"), ""},
		"device ID of another":   {claim(podOf("p", "B", 10, 10), "g0-0"), AmbiguousDeviceIDs},
		"device IDs of two pods": {claim(podOf("p", "B", 10, 10), "g0-0", "g0-9"), AmbiguousDeviceIDs},
		"another container":      {Claim{Pod: podOf("p", "A", 50, 50), Container: "side", DeviceIDs: []string{"g0-1"}}, Forged},
		"sick":                   {claim(podOf("p", "sick", 50, 50), "g0-1"), DoesNotFit},
		"whole GPU, not empty":   {claim(podOf("p", "A", 100, 100), "g0-1"), DoesNotFit},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook("A", "B", "sick")
			b.slices.All[2].Healthy = false
			if _, _, refusal := b.Admit(claim(podOf("resident", "A", 50, 50), "g0-0"), start); refusal != nil {
				t.Fatal(refusal)
			}
			g, changed, refusal := b.Admit(test.claim, start)
			switch {
			case test.want == "" && (refusal != nil || changed || g.Since != start):
				t.Errorf("refused: %v; granted %+v", refusal, g)
			case test.want != "" && (refusal == nil || refusal.Reason != test.want):
				t.Errorf("got %v, want %s", refusal, test.want)
			case test.want != "" && len(b.All()) != 1:
				t.Errorf("what was refused is in the book: %v", b.All())
			}
		})
	}
}

// TestSeveralSlices: a container has several slices only if it is alone on them, whatever the scheduler wrote.
func TestSeveralSlices(t *testing.T) {
	for class, want := range map[share.Isolation]Reason{share.Exclusive: "", share.MPS: NotServed} {
		t.Run(string(class), func(t *testing.T) {
			pod := podOf("p", "A", 50, 100)
			limits := pod.Spec.Containers[0].Resources.Limits
			for name, n := range map[v1.ResourceName]int64{kube.ResourceSM: 100, kube.ResourceVGPU: 2, kube.ResourceMemory: 2048, kube.ResourceSMTime: 10_000} {
				limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
			}
			pod.Spec.Containers[0].Resources.Requests = limits
			p := placementFor(pod, "A", 50, 100)
			other := p.Containers[0].VGPUs[0]
			other.Slice = "B"
			p.Containers[0].VGPUs = append(p.Containers[0].VGPUs, other)
			for i := range p.Containers[0].VGPUs {
				p.Containers[0].VGPUs[i].Class = class
			}
			place(pod, p)
			pod.Annotations[kube.AnnotationIsolation] = string(class)
			_, _, refusal := newBook("A", "B").Admit(claim(pod, "g0-0", "g1-0"), start)
			if got := refusal; (got == nil) != (want == "") || got != nil && got.Reason != want {
				t.Errorf("%s: %v, want %q", class, got, want)
			}
		})
	}
}

// TestClasses: a slice changes its class only when it is empty, whatever the scheduler wrote.
func TestClasses(t *testing.T) {
	elastic := func(uid string) *v1.Pod {
		pod := podOf(uid, "A", 20, 100)
		p := placementFor(pod, "A", 20, 100)
		p.Containers[0].VGPUs[0].Class, p.Containers[0].VGPUs[0].Share.SMLimit = share.Elastic, 600
		place(pod, p)
		return pod
	}
	for name, test := range map[string]struct {
		there, comes *v1.Pod
		beside       bool
	}{
		"elastic beside mps":     {podOf("p", "A", 20, 100), elastic("q"), false},
		"mps beside elastic":     {elastic("p"), podOf("q", "A", 20, 100), false},
		"elastic beside elastic": {elastic("p"), elastic("q"), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook("A")
			b.slices.All[0].Classes = append(b.slices.All[0].Classes, share.Elastic)
			g, _, refusal := b.Admit(claim(test.there, "g0-0"), start)
			if refusal != nil {
				t.Fatal(name, refusal)
			}
			if _, _, refusal := b.Admit(claim(test.comes, "g0-1"), start); (refusal == nil) != test.beside {
				t.Errorf("%s: %v", name, refusal)
			}
			b.Release(g.ID())
			if _, _, refusal := b.Admit(claim(test.comes, "g0-1"), start); refusal != nil {
				t.Errorf("%s, on the empty slice: %v", name, refusal)
			}
		})
	}
	b := newBook("A")
	if _, _, refusal := b.Admit(claim(elastic("p"), "g0-0"), start); refusal == nil {
		t.Error("a class that the node does not list was granted")
	}
}

// TestTenants: a slice is one namespace's unless the administrator says otherwise.
func TestTenants(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		b := newBook("A")
		b.slices.All[0].MixTenants = mixed
		if _, _, refusal := b.Admit(claim(podOf("p", "A", 10, 10), "g0-0"), start); refusal != nil {
			t.Fatal(refusal)
		}
		stranger := podOf("q", "A", 10, 10)
		stranger.Namespace = "other"
		if _, _, refusal := b.Admit(claim(stranger, "g0-1"), start); (refusal == nil) != mixed {
			t.Errorf("mixed %v: %v", mixed, refusal)
		}
	}
}

// TestFrozen: a grant is the same however often it is asked for, and whatever the pod says later.
func TestFrozen(t *testing.T) {
	b := newBook("A", "B")
	pod := podOf("p", "A", 50, 50)
	first, _, refusal := b.Admit(claim(pod, "g0-1"), start)
	if refusal != nil {
		t.Fatal(refusal)
	}
	again, changed, refusal := b.Admit(claim(pod, "g0-1"), start.Add(time.Hour))
	if diff := cmp.Diff(first, again); refusal != nil || changed || diff != "" {
		t.Errorf("again: %v, changed %v\n%s", refusal, changed, diff)
	}
	place(pod, placementFor(pod, "B", 50, 50))
	if edited, changed, refusal := b.Admit(claim(pod, "g0-1"), start); refusal != nil || !changed || !cmp.Equal(first, edited) {
		t.Errorf("edited: %+v, changed %v, %v", edited, changed, refusal)
	}
	pod.Annotations = nil
	if _, changed, refusal := b.Admit(claim(pod, "g0-1"), start); refusal != nil || !changed {
		t.Errorf("without placement: changed %v, %v", changed, refusal)
	}
	if _, _, refusal := b.Admit(claim(pod, "g0-7"), start); refusal == nil || refusal.Reason != AmbiguousDeviceIDs {
		t.Errorf("with other device IDs: %v", refusal)
	}
	b.SetSlices(Slices{}) // the device is gone: who has it keeps it
	if _, _, refusal := b.Admit(claim(pod, "g0-1"), start); refusal != nil {
		t.Errorf("with the slice gone: %v", refusal)
	}
}

func TestRecord(t *testing.T) {
	b := newBook("A")
	g, _, refusal := b.Admit(claim(podOf("p", "A", 50, 50), "g0-2"), start)
	if refusal != nil {
		t.Fatal(refusal)
	}
	text, err := Encode(g, "n")
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(text)
	if diff := cmp.Diff(g, back); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestOwnerID(t *testing.T) {
	a, b := Owner{UID: "u", Container: "c"}, Owner{UID: "u", Container: "d"}
	if a.ID() == b.ID() || len(a.ID()) != 16 || (Owner{UID: "u\nc"}).ID() == a.ID() {
		t.Error("IDs do not tell owners apart")
	}
}

// TestRandomLife lets pods come, start again and go, some of them forged, with agents that end and restore in between. No slice
// ever holds more than fits, no device ID has two owners, and a grant never changes.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		b := newBook("A", "B")
		alive := map[string]*v1.Pod{}
		frozen := map[string]Grant{}
		for step := range 120 {
			switch uid := fmt.Sprintf("%02d", random.IntN(20)); {
			case random.IntN(5) == 0: // a pod ends
				if pod := alive[uid]; pod != nil {
					id := Owner{UID: pod.UID, Container: "main"}.ID()
					b.Release(id)
					delete(alive, uid)
					delete(frozen, id)
				}
			case random.IntN(8) == 0: // the agent ends, and a new one reads the records
				next := newBook("A", "B")
				for _, g := range b.All() {
					text, _ := Encode(g, "n")
					back, err := Decode(text)
					if err != nil {
						t.Fatal(err)
					}
					next.Restore(back)
				}
				b = next
			default: // a container starts, for the first time or again
				pod := alive[uid]
				if pod == nil {
					pod = podOf(uid+fmt.Sprint(step), []string{"A", "B"}[random.IntN(2)], int64(10*(1+random.IntN(9))), int64(10*(1+random.IntN(9))))
					alive[uid] = pod
				}
				g, _, refusal := b.Admit(claim(pod, "g0-"+uid), start.Add(time.Duration(step)))
				if before, ok := frozen[g.ID()]; refusal == nil && ok && !cmp.Equal(before, g) {
					t.Fatalf("seed %d: a grant changed from %+v to %+v", seed, before, g)
				}
				if refusal == nil {
					frozen[g.ID()] = g
				}
			}
			check(t, b, seed)
		}
	}
}

// check holds the book against the rules: all that is on a slice would be admitted in any order.
func check(t *testing.T, b *Book, seed uint64) {
	t.Helper()
	deviceIDs := map[string]bool{}
	rules := packing.NewRules(packing.Slots)
	for i := range b.slices.All {
		s := &b.slices.All[i]
		load := &packing.Load{}
		for _, g := range slices.Backward(b.On(string(s.ID))) {
			ask := packing.ShareRequest{Tenant: g.Namespace, Share: g.VGPUs[0].Share, Terms: share.Terms{Isolation: share.MPS, Slice: share.WholeGPU}}
			if _, refusal := rules.Admit(s, load, ask); refusal != packing.Admitted {
				t.Fatalf("seed %d: slice %s holds what does not fit: %v", seed, s.ID, refusal)
			}
			load.Add(packing.Resident{Tenant: g.Namespace, Model: packing.Slots, Class: share.MPS, Share: g.VGPUs[0].Share})
			for _, id := range g.DeviceIDs {
				if deviceIDs[id] {
					t.Fatalf("seed %d: device ID %s has two owners", seed, id)
				}
				deviceIDs[id] = true
			}
		}
	}
}

// TestKind: a container starts on the kind of slice that its pod asks for, whatever an older scheduler has made of it.
func TestKind(t *testing.T) {
	own := kube.AnnotationContainerSlice + "main"
	for name, c := range map[string]struct {
		on   string
		says map[string]string
		want Reason
	}{
		"nothing is said":              {"mig", nil, ""},
		"of the pod":                   {"mig", map[string]string{kube.AnnotationSlice: "3g.40gb"}, ""},
		"of the pod, another":          {"gpu", map[string]string{kube.AnnotationSlice: "3g.40gb"}, Forged},
		"its own":                      {"mig", map[string]string{own: "3g.40gb", kube.AnnotationSlice: "gpu"}, ""},
		"any instance":                 {"mig", map[string]string{own: "mig"}, ""},
		"its own, another profile":     {"mig", map[string]string{own: "1g.10gb"}, Forged},
		"its own, of an unaware one":   {"gpu", map[string]string{own: "3g.40gb"}, Forged},
		"best effort is good enough":   {"gpu", map[string]string{own: "3g.40gb", kube.AnnotationEnforcement: "best-effort"}, ""},
		"a GPU, and is on an instance": {"mig", map[string]string{own: "gpu"}, Forged},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook("gpu", "mig")
			b.slices.All[1].Profile = "3g.40gb"
			pod := podOf("p", c.on, 20, 20)
			for key, text := range c.says {
				pod.Annotations[key] = text
			}
			_, _, refusal := b.Admit(claim(pod, "g0-0"), start)
			switch {
			case c.want == "" && refusal != nil:
				t.Errorf("refused: %v", refusal)
			case c.want != "" && (refusal == nil || refusal.Reason != c.want || !strings.Contains(refusal.Text, "slice "+c.on)):
				t.Errorf("%v, want %s that names %s", refusal, c.want, c.on)
			}
		})
	}
}

// TestOverlappingInstances: MIG instances that share memory slices of one GPU cannot both be granted; those of other GPUs, those beside
// each other, and the instance itself do not count.
func TestOverlappingInstances(t *testing.T) {
	instance := func(id, device string, memory uint8) packing.Slice {
		return packing.Slice{
			ID: packing.SliceID(id), Device: device, Model: "A100", Profile: "3g.40gb", SMs: 42, Memory: 40 << 30, MemorySlices: memory,
			Classes: []share.Isolation{share.Exclusive, share.MPS}, Healthy: true, Reserve: 50, MaxShares: 16,
		}
	}
	placed := func(uid, slice string) *v1.Pod {
		pod := podOf(uid, slice, 20, 20)
		pod.Annotations[kube.AnnotationSlice] = "3g.40gb"
		return pod
	}
	for name, c := range map[string]struct {
		first, second string
		want          Reason
	}{
		"overlap":           {"low", "middle", DoesNotFit},
		"the other way":     {"middle", "low", DoesNotFit},
		"beside each other": {"low", "high", ""},
		"another GPU":       {"low", "other", ""},
		"the same instance": {"low", "low", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook()
			b.SetSlices(Slices{All: []packing.Slice{
				instance("low", "A", 0b0000_1111), instance("middle", "A", 0b0011_1100), instance("high", "A", 0b1111_0000),
				instance("other", "B", 0b0000_1111),
			}})
			if _, _, refusal := b.Admit(claim(placed("first", c.first), "g0-0"), start); refusal != nil {
				t.Fatal(refusal)
			}
			_, _, refusal := b.Admit(claim(placed("second", c.second), "g0-1"), start)
			switch {
			case c.want == "" && refusal != nil:
				t.Errorf("refused: %v", refusal)
			case c.want != "" && (refusal == nil || refusal.Reason != c.want || !strings.Contains(refusal.Text, c.first)):
				t.Errorf("%v, want %s that names %s", refusal, c.want, c.first)
			}
		})
	}
}
