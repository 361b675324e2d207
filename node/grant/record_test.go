package grant

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRecordGolden compares with a record as agents have it on disk: it must mean the same to every later agent of this version.
func TestRecordGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/grant.json")
	if err != nil {
		t.Fatal(err)
	}
	want := Grant{
		Owner:     Owner{UID: "5f0c1d7e-2b1a-4c55-9d0e-1f2a3b4c5d6e", Namespace: "team", Name: "pod-0", Container: "main"},
		DeviceIDs: []string{"g0-1", "g0-2"}, Model: kube.Slots, Since: start, BestEffort: true,
	}
	for _, id := range []string{"GPU-1", "GPU-2"} {
		want.VGPUs = append(want.VGPUs, kube.PlacedVGPU{Slice: id, Class: share.Elastic, Priority: share.SLO, Share: share.Share{
			SMRequest: 240, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 8 << 30,
		}})
	}
	g, err := Decode(golden)
	if diff := cmp.Diff(want, g); err != nil || diff != "" {
		t.Errorf("decoded: %v\n%s", err, diff)
	}
	text, err := Encode(g, "n1")
	if diff := cmp.Diff(string(golden), string(text)+"\n"); err != nil || diff != "" {
		t.Errorf("encoded again: %v\n%s", err, diff)
	}
}

func TestRecordWithWeightsGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/grant-weights.json")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Decode(golden)
	if diff := cmp.Diff(weights, g.Weights); err != nil || diff != "" {
		t.Errorf("decoded: %v\n%s", err, diff)
	}
	text, err := Encode(g, "n1")
	if diff := cmp.Diff(string(golden), string(text)+"\n"); err != nil || diff != "" {
		t.Errorf("encoded again: %v\n%s", err, diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	golden, err := os.ReadFile("testdata/grant.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, new string }{
		"newer version":          {`"version":1`, `"version":2`},
		"no version":             {`"version":1,`, ``},
		"renamed field":          {`"tickets"`, `"Tickets"`},
		"fewer device IDs":       {`"g0-1",`, ``},
		"placement of another":   {`"placement":{"v":1,"node":"n1","uid":"5f0c`, `"placement":{"v":1,"node":"n1","uid":"6f0c`},
		"newer placement":        {`"placement":{"v":1`, `"placement":{"v":2`},
		"placement without vGPU": {`"vgpus":[`, `"vgpus":[],"x":[`},
		"torn":                   {`}}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(golden), test.old, test.new, 1)
			if g, err := Decode([]byte(text)); err == nil || text == string(golden) {
				t.Errorf("%s was decoded as %+v", text, g)
			}
		})
	}
	for _, text := range []string{"", "{}", "[]", `{"version":1}`} {
		t.Run(text, func(t *testing.T) {
			if g, err := Decode([]byte(text)); err == nil {
				t.Errorf("decoded as %+v", g)
			}
		})
	}
}
