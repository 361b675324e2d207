package grant

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// TestResidencyRecordGolden compares with a record of an instance of a function, and checks that no level is taken from an older record.
func TestResidencyRecordGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/grant-residency.json")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Decode(golden)
	if want := (residency.Reached{Seq: 3, Level: residency.Shared, Refused: true}); err != nil || g.Residency != want {
		t.Errorf("decoded: %+v, %v; want %+v", g.Residency, err, want)
	}
	if text, err := Encode(g, "n1"); err != nil || string(text)+"\n" != string(golden) {
		t.Errorf("encoded again: %s, %v", text, err)
	}
	if g.Residency = (residency.Reached{}); g.Level() != residency.Hot || g.Record() != (residency.Reached{Level: residency.Hot}) {
		t.Errorf("a pod that is no instance is %v, its record %+v", g.Level(), g.Record())
	}
	for name, test := range map[string]struct{ old, new string }{
		"as an older version": {`"version":2`, `"version":1`},
		"newer version":       {`"version":2`, `"version":3`},
		"no residency":        {`,"residency":{"seq":3,"level":"Shared","refused":true}`, ``},
		"Cold":                {`"Shared"`, `"Cold"`},
		"unknown level":       {`"Shared"`, `"Lukewarm"`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(golden), test.old, test.new, 1)
			if g, err := Decode([]byte(text)); err == nil || text == string(golden) {
				t.Errorf("%s was decoded as %+v", text, g)
			}
		})
	}
}

// wanting returns a pod that is an instance of a function, of which a level is wanted.
func wanting(pod *v1.Pod, seq int64, l residency.Level) *v1.Pod {
	text, err := residency.Wanted{Seq: seq, Level: l, Drained: l < residency.Shared}.Encode()
	if err != nil {
		panic(err)
	}
	pod.Annotations[kube.AnnotationResidency] = text
	return pod
}

// TestBookCountsLevels: a Shared container counts with its memory and one place, is admitted where there is no SM-time, and finds room
// for its own SM-time only beside what is granted and what waits.
func TestBookCountsLevels(t *testing.T) {
	b := newBook("A")
	admit := func(pod *v1.Pod, deviceID string) (Grant, *Refusal) {
		g, _, refusal := b.Admit(claim(pod, deviceID), start)
		return g, refusal
	}
	first, refusal := admit(wanting(podOf("first", "A", 60, 90), 1, residency.Hot), "g0-0")
	if refusal != nil || first.Residency != (residency.Reached{Seq: 1, Level: residency.Hot}) {
		t.Fatalf("%+v, %v", first.Residency, refusal)
	}
	other := podOf("other", "A", 60, 90)
	if _, refusal := admit(other, "g0-1"); refusal == nil || refusal.Reason != DoesNotFit {
		t.Errorf("beside a Hot one: %v", refusal)
	}
	b.SetResidency(first.ID(), residency.Reached{Seq: 2, Level: residency.Shared})
	waiting := Placed(other, "n")
	if len(waiting) != 1 || b.FitsAt(first.ID(), residency.Hot, waiting) || !b.FitsAt(first.ID(), residency.Hot, nil) {
		t.Errorf("room for a raise beside %d that wait: %t, and without: %t", len(waiting), b.FitsAt(first.ID(), residency.Hot, waiting),
			b.FitsAt(first.ID(), residency.Hot, nil))
	}
	second, refusal := admit(other, "g0-1")
	if refusal != nil || second.Residency != (residency.Reached{}) {
		t.Fatalf("beside a Shared one: %+v, %v", second.Residency, refusal)
	}
	if b.FitsAt(first.ID(), residency.Hot, waiting) {
		t.Error("room for a raise beside what was granted meanwhile")
	}
	if third, refusal := admit(wanting(podOf("third", "A", 60, 90), 4, residency.Shared), "g0-2"); refusal != nil ||
		third.Residency != (residency.Reached{Seq: 4, Level: residency.Shared}) {
		t.Errorf("a third, as Shared: %+v, %v", third.Residency, refusal)
	}
	if _, refusal := admit(wanting(podOf("last", "A", 1, 1), 5, residency.Cold), "g0-3"); refusal == nil || refusal.Reason != Unwanted {
		t.Errorf("one that is to be deleted: %v", refusal)
	}
	b.SetResidency(first.ID(), residency.Reached{Seq: 3, Level: residency.Warm, Memory: 1 << 20})
	if got := b.GrantedMemory("A"); got != 2<<30+1<<20 {
		t.Errorf("memory of %d bytes is granted beside a parked one", got)
	}
	b.SetResidency(first.ID(), residency.Reached{Seq: 4, Level: residency.Shared})
	malformed := podOf("malformed", "A", 60, 90)
	malformed.Annotations[kube.AnnotationResidency] = "Shared"
	if _, refusal := admit(malformed, "g0-4"); refusal == nil {
		t.Error("a malformed level does not count as Hot")
	}
	if got := b.GrantedMemory("A"); got != 3<<30 {
		t.Errorf("memory of %d bytes is granted", got)
	}
	b.Release(second.ID())
	if !b.FitsAt(first.ID(), residency.Hot, nil) || b.FitsAt("none", residency.Hot, nil) {
		t.Error("room for a raise after the release, or for a grant that does not exist")
	}
	if len(Placed(other, "m")) > 0 {
		t.Error("a placement on another node waits here")
	}
}
