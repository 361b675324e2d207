package grant

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// keyedPod is a pod of a namespace that was placed on a slice with an anti-affinity key.
func keyedPod(uid, namespace, slice, key string) *v1.Pod {
	pod := podOf(uid, slice, 10, 100)
	pod.Namespace = namespace
	p := placementFor(pod, slice, 10, 100)
	p.AntiAffinity = key
	place(pod, p)
	return pod
}

// instanceBook is of a node with a GPU of two MIG instances, A and B, and another GPU, C. Namespaces may share slices.
func instanceBook() *Book {
	b := newBook("A", "B", "C")
	for i := range b.slices.All {
		b.slices.All[i].MixTenants = true
	}
	for i := range 2 {
		b.slices.All[i].Device, b.slices.All[i].Profile = "A", "1g.10gb"
	}
	return b
}

// The agent refuses a placement that puts a key twice on one device, whatever the scheduler said: it may be of an earlier version, and two of
// them may have placed at once.
func TestAdmitKeepsKeysApart(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, slice, key string
		fits                  bool
	}{
		"the same slice":                   {"ml", "A", "x", false},
		"another slice of the device":      {"ml", "B", "x", false},
		"another device":                   {"ml", "C", "x", true},
		"another key":                      {"ml", "A", "y", true},
		"no key":                           {"ml", "A", "", true},
		"the same key of another tenant":   {"other", "A", "x", true},
		"and of another tenant, elsewhere": {"other", "B", "x", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := instanceBook()
			if _, _, refusal := b.Admit(claim(keyedPod("a", "ml", "A", "x"), "g0-0"), start); refusal != nil {
				t.Fatal(refusal)
			}
			second := keyedPod("b", tc.namespace, tc.slice, tc.key)
			g, _, refusal := b.Admit(claim(second, "g0-1"), start)
			switch {
			case tc.fits && (refusal != nil || g.AntiAffinity != tc.key):
				t.Errorf("refused: %v", refusal)
			case !tc.fits && (refusal == nil || refusal.Reason != DoesNotFit || !strings.Contains(refusal.Text, "the same anti-affinity")):
				t.Errorf("granted, or with another reason: %v", refusal)
			}
			if waiting := Placed(second, "n"); !tc.fits {
				if b.FitsAt(b.All()[0].ID(), residency.Hot, waiting) {
					t.Error("a pod that waits with the key does not count")
				}
				b.Release(b.All()[0].ID())
				if _, _, refusal := b.Admit(claim(second, "g0-1"), start); refusal != nil {
					t.Errorf("refused once the other has gone: %v", refusal)
				}
			}
		})
	}
}

// A key is that of the placement: an annotation that the user changes later has no effect, and a changed placement is reported.
func TestKeyIsThatOfThePlacement(t *testing.T) {
	b, pod := instanceBook(), keyedPod("a", "ml", "A", "x")
	pod.Annotations[kube.AnnotationAntiAffinity] = "other"
	g, changed, refusal := b.Admit(claim(pod, "g0-0"), start)
	if refusal != nil || changed || g.AntiAffinity != "x" {
		t.Errorf("key %q, %t, %v", g.AntiAffinity, changed, refusal)
	}
	if _, changed, refusal := b.Admit(claim(keyedPod("a", "ml", "A", ""), "g0-0"), start); !changed || refusal != nil {
		t.Errorf("a placement without the key: changed %t, %v", changed, refusal)
	}
	text, err := Encode(g, "n")
	if err != nil {
		t.Fatal(err)
	}
	if read, err := Decode(text); err != nil || read.AntiAffinity != "x" {
		t.Errorf("the record has the key %q, %v: %s", read.AntiAffinity, err, text)
	}
}

// After any number of starts, no device holds a key of a namespace twice.
func TestRestoredKeysCount(t *testing.T) {
	before := instanceBook()
	for i, slice := range []string{"A", "C"} {
		if _, _, refusal := before.Admit(claim(keyedPod(fmt.Sprint(i), "ml", slice, "x"), fmt.Sprint("g0-", i)), start); refusal != nil {
			t.Fatal(refusal)
		}
	}
	after := instanceBook()
	for _, g := range before.All() {
		text, err := Encode(g, "n")
		if err != nil {
			t.Fatal(err)
		}
		g, err = Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		after.Restore(g)
	}
	for i, slice := range []string{"A", "B", "C"} {
		if _, _, refusal := after.Admit(claim(keyedPod("new-"+slice, "ml", slice, "x"), fmt.Sprint("g1-", i)), start); refusal == nil {
			t.Errorf("a second one was granted on %s", slice)
		}
	}
}
