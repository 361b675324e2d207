package grant

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func ofClaim(uid, slice string, sm share.PerMille, memory share.Bytes) Claim {
	claim := types.UID("claim-of-" + uid)
	return Claim{
		Pod:       &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns-" + uid, Name: uid}},
		Container: "main", DeviceIDs: ClaimDeviceIDs(claim, 1), ResourceClaim: ResourceClaim{UID: claim, Name: "c", ShareIDs: []types.UID{"s"}},
		Allocated: []kube.PlacedVGPU{{Slice: slice, Class: share.MPS, Priority: share.BestEffort, Share: share.Share{
			SMRequest: sm, SMLimit: sm, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: memory,
		}}},
	}
}

// TestClaimsFit: the book does not believe the scheduler that allocated, and each slice has one interface.
func TestClaimsFit(t *testing.T) {
	for name, test := range map[string]struct {
		claims map[string]bool // the slices of claims
		second Claim
		want   Reason // empty: granted
	}{
		"the rest":                      {map[string]bool{"A": true}, ofClaim("q", "A", 760, 60<<30), ""},
		"more SMs than are left":        {map[string]bool{"A": true}, ofClaim("q", "A", 770, 1<<30), DoesNotFit},
		"more memory than is left":      {map[string]bool{"A": true}, ofClaim("q", "A", 100, 61<<30), DoesNotFit},
		"another slice":                 {map[string]bool{"A": true, "B": true}, ofClaim("q", "B", 1000, 80<<30), ""},
		"a slice of the device plugin":  {map[string]bool{"A": true}, ofClaim("q", "B", 240, 1<<30), OtherInterface},
		"a placed pod on claims' slice": {map[string]bool{"A": true}, claim(podOf("q", "A", 10, 100), "g0-0"), OtherInterface},
		"a placed pod on another's":     {map[string]bool{"A": true}, claim(podOf("q", "B", 10, 100), "g0-0"), ""},
		"a slice that the node has not": {map[string]bool{"A": true}, ofClaim("q", "C", 10, 1<<30), UnknownSlice},
		"a second claim of one container": {map[string]bool{"A": true}, func() Claim {
			c := ofClaim("p", "A", 10, 1<<30)
			c.ResourceClaim.UID, c.DeviceIDs = "other", ClaimDeviceIDs("other", 1)
			return c
		}(), UnsafePod},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook("n")
			slices := newBook("A", "B").slices
			slices.Claims = test.claims
			for i := range slices.All {
				slices.All[i].MixTenants = true
			}
			b.SetSlices(slices)
			first := ofClaim("p", "A", 240, 20<<30)
			for range 2 {
				if g, changed, refusal := b.Admit(first, start); refusal != nil || changed || g.ResourceClaim.UID != first.ResourceClaim.UID {
					t.Fatalf("the first: %+v, %v, %v", g, changed, refusal)
				}
			}
			_, _, refusal := b.Admit(test.second, start)
			if refusal == nil && test.want != "" || refusal != nil && refusal.Reason != test.want {
				t.Errorf("got %v, want %q", refusal, test.want)
			}
		})
	}
}

// TestClaimRecord compares with a record as agents have it on disk.
func TestClaimRecord(t *testing.T) {
	golden, err := os.ReadFile("testdata/grant-claim.json")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Decode(golden)
	if err != nil || g.ResourceClaim.UID != "7c" || g.Container != "main" || !g.Holds(ClaimDeviceIDs("7c", 1)) {
		t.Fatalf("%+v, %v", g, err)
	}
	text, err := Encode(g, "n1")
	if diff := cmp.Diff(string(golden), string(text)+"\n"); err != nil || diff != "" {
		t.Errorf("encoded again: %v\n%s", err, diff)
	}
	for name, change := range map[string]struct{ old, new string }{
		"no claim":          {`,"resourceClaim":{"uid":"7c","name":"pod-0-gpu","shareIDs":["5a"]}`, ""},
		"no share ID":       {`"shareIDs":["5a"]`, `"shareIDs":[]`},
		"no UID":            {`"uid":"7c"`, `"uid":""`},
		"a claim too early": {`"version":3`, `"version":1`},
		"a residency":       {`"version":3`, `"version":3,"residency":{"seq":1,"level":"Hot"}`},
	} {
		text := strings.Replace(string(golden), change.old, change.new, 1)
		if g, err := Decode([]byte(text)); err == nil || text == string(golden) {
			t.Errorf("%s: decoded as %+v", name, g)
		}
	}
}
