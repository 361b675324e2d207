package kube

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	gpu0 = "GPU-5b2e3c1a-0000-4d2f-9a7e-1f6c8e0d4a01"
	gpu1 = "GPU-5b2e3c1a-0001-4d2f-9a7e-1f6c8e0d4a01"
	mig0 = "MIG-7c9e6679-0000-40de-944b-e07fc1f90ae7"
	mig1 = "MIG-7c9e6679-0001-40de-944b-e07fc1f90ae7"
)

func testInventory() Inventory {
	all := []share.Isolation{share.Exclusive, share.MPS, share.Elastic}
	rules := Rules{GammaPercent: 150, MixTenants: true, Window: metav1.Duration{Duration: 50 * time.Millisecond}}
	return Inventory{Rules: &rules, Slices: []Slice{
		{ID: gpu0, Device: gpu0, Model: "H200", SMs: 132, MemoryMiB: 143771, Classes: all, Healthy: true, Reserve: 80, MaxShares: 16},
		{ID: mig0, Device: gpu1, Model: "H200", Profile: "1g.18gb", SMs: 16, MemoryMiB: 16384, Classes: all[1:2], Healthy: true, Reserve: 50, MaxShares: 4},
		{ID: mig1, Device: gpu1, Model: "H200", Profile: "1g.18gb+me", SMs: 16, MemoryMiB: 16384, Reason: ReasonFault, Reserve: 50, MaxShares: 16},
	}}
}

func TestInventoryGolden(t *testing.T) {
	want := golden(t, "inventory.json")
	got, err := EncodeInventory(testInventory())
	if err != nil || got != want {
		t.Errorf("EncodeInventory = %v\n%s\nwant\n%s", err, got, want)
	}
	inv, err := DecodeInventory(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testInventory(), inv); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// TestInventoryOfEarlierAgent: an inventory without rules is valid, and its node has the default window.
func TestInventoryOfEarlierAgent(t *testing.T) {
	want := testInventory()
	want.Rules = nil
	text, err := EncodeInventory(want)
	if err != nil || strings.Contains(text, "rules") {
		t.Fatalf("%v\n%s", err, text)
	}
	got, err := DecodeInventory(text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, inventory (-want +got):\n%s", err, diff)
	}
	if got.RulesOrDefault() != DefaultRules() || testInventory().RulesOrDefault().Window.Duration != 50*time.Millisecond {
		t.Errorf("rules %v and %v", got.RulesOrDefault(), testInventory().RulesOrDefault())
	}
}

// TestInventoryLocality: NUMA node 0 is not the same as one that is not known.
func TestInventoryLocality(t *testing.T) {
	want := testInventory()
	want.Slices[0].NUMA, want.Slices[0].NVLink = new(0), 3
	text, err := EncodeInventory(want)
	if err != nil || !strings.Contains(text, `"numa":0,"nvlink":3`) || strings.Count(text, "numa") != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	got, err := DecodeInventory(text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, inventory (-want +got):\n%s", err, diff)
	}
}

func TestInventoryDefaults(t *testing.T) {
	text, err := EncodeInventory(Inventory{Slices: []Slice{{ID: gpu0, Device: gpu0, Model: "H200", SMs: 132, MemoryMiB: 1, Classes: []share.Isolation{}}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeInventory(text)
	want := Inventory{Slices: []Slice{{ID: gpu0, Device: gpu0, Model: "H200", SMs: 132, MemoryMiB: 1, Reserve: DefaultReserve, MaxShares: DefaultMaxShares}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, inventory (-want +got):\n%s", err, diff)
	}
	empty, err := EncodeInventory(Inventory{})
	if err != nil || empty != `{"v":1,"slices":[]}` {
		t.Errorf("the empty inventory is %s, %v", empty, err)
	}
}

func TestDecodeInventoryRefusesText(t *testing.T) {
	slice := `{"id":"a","device":"a","model":"T4","sms":40,"memoryMiB":1}`
	if _, err := DecodeInventory(`{"v":1,"slices":[` + slice + `]}`); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":            "",
		"null":             "null",
		"list":             "[]",
		"no version":       `{"slices":[]}`,
		"next version":     `{"v":2,"slices":[]}`,
		"cut":              `{"v":1,"slices":[`,
		"trailing brace":   `{"v":1,"slices":[]}}`,
		"trailing value":   `{"v":1,"slices":[]} {}`,
		"trailing text":    `{"v":1,"slices":[]} x`,
		"unknown field":    `{"v":1,"slices":[],"shares":1}`,
		"unknown in slice": `{"v":1,"slices":[{"uuid":"a"}]}`,
		"unknown in rules": `{"v":1,"rules":{"gammaPercent":150,"mixTenants":false,"window":"100ms","turn":"5ms"},"slices":[]}`,
		"window in digits": `{"v":1,"rules":{"gammaPercent":150,"mixTenants":false,"window":100},"slices":[]}`,
		"empty rules":      `{"v":1,"rules":{},"slices":[]}`,
		"repeated field":   `{"v":1,"slices":[],"slices":[]}`,
		"other case":       `{"v":1,"slices":[],"SLICES":[]}`,
		"escaped letter":   `{"v":1,"\u0073lices":[]}`,
		"folded letter":    `{"v":1,"slices":[],"ſlices":[]}`,
		"wrong type":       `{"v":1,"slices":[{"id":7}]}`,
		"fraction":         strings.Replace(`{"v":1,"slices":[`+slice+`]}`, "40", "40.5", 1),
		"overflow":         strings.Replace(`{"v":1,"slices":[`+slice+`]}`, "40", "1e30", 1),
		"deep":             strings.Repeat("[", MaxInventoryBytes),
		"oversized":        `{"v":1,"slices":[]}` + strings.Repeat(" ", MaxInventoryBytes),
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := DecodeInventory(text)
			wantMalformed(t, err)
			if inv.Slices != nil {
				t.Errorf("a refused inventory has slices: %+v", inv)
			}
		})
	}
}

func TestInventoryRefusesValues(t *testing.T) {
	for name, spoil := range map[string]func(*Inventory){
		"no id":                func(i *Inventory) { i.Slices[0].ID = "" },
		"id with quote":        func(i *Inventory) { i.Slices[0].ID = `a"b` },
		"long id":              func(i *Inventory) { i.Slices[1].ID = strings.Repeat("a", maxIDLength+1) },
		"same id":              func(i *Inventory) { i.Slices[2].ID = mig0 },
		"no device":            func(i *Inventory) { i.Slices[1].Device = "" },
		"whole GPU, other GPU": func(i *Inventory) { i.Slices[0].Device = gpu1 },
		"instance is device":   func(i *Inventory) { i.Slices[1].Device = mig0 },
		"whole and in parts":   func(i *Inventory) { i.Slices[1].Device = gpu0 },
		"no model":             func(i *Inventory) { i.Slices[0].Model = "" },
		"two models":           func(i *Inventory) { i.Slices[0].Model = "A,B" },
		"profile":              func(i *Inventory) { i.Slices[1].Profile = "1g" },
		"no SMs":               func(i *Inventory) { i.Slices[0].SMs = 0 },
		"negative SMs":         func(i *Inventory) { i.Slices[0].SMs = -1 },
		"many SMs":             func(i *Inventory) { i.Slices[0].SMs = 4097 },
		"no memory":            func(i *Inventory) { i.Slices[0].MemoryMiB = 0 },
		"memory in bytes":      func(i *Inventory) { i.Slices[0].MemoryMiB = 143771 << 20 },
		"reason to be healthy": func(i *Inventory) { i.Slices[0].Reason = ReasonUsed },
		"reason in words":      func(i *Inventory) { i.Slices[2].Reason = "it failed" },
		"long reason":          func(i *Inventory) { i.Slices[2].Reason = Reason(strings.Repeat("a", maxReason+1)) },
		"unknown class":        func(i *Inventory) { i.Slices[0].Classes = []share.Isolation{"soft"} },
		"swap of no bound":     func(i *Inventory) { i.Slices[0].Classes = []share.Isolation{share.Swap} },
		"swap without class":   func(i *Inventory) { i.Slices[0].Swap = &Swap{} },
		"swap to a negative": func(i *Inventory) {
			i.Slices[0].Classes, i.Slices[0].Swap = []share.Isolation{share.Swap}, &Swap{HostMiB: -1}
		},
		"swap keeps too much": func(i *Inventory) {
			i.Slices[0].Classes, i.Slices[0].Swap = []share.Isolation{share.Swap}, &Swap{KeptMiB: 1 << 31}
		},
		"class without a name":  func(i *Inventory) { i.Slices[0].Classes = []share.Isolation{""} },
		"class twice":           func(i *Inventory) { i.Slices[0].Classes = []share.Isolation{share.MPS, share.MPS} },
		"reserve":               func(i *Inventory) { i.Slices[0].Reserve = 1001 },
		"negative reserve":      func(i *Inventory) { i.Slices[0].Reserve = -1 },
		"more than MPS clients": func(i *Inventory) { i.Slices[0].MaxShares = 61 },
		"negative shares":       func(i *Inventory) { i.Slices[0].MaxShares = -1 },
		"NUMA of an instance":   func(i *Inventory) { i.Slices[1].NUMA = new(0) },
		"NVLink of an instance": func(i *Inventory) { i.Slices[1].NVLink = 1 },
		"negative NUMA":         func(i *Inventory) { i.Slices[0].NUMA = new(-1) },
		"NUMA too large":        func(i *Inventory) { i.Slices[0].NUMA = new(maxLocality + 1) },
		"negative NVLink":       func(i *Inventory) { i.Slices[0].NVLink = -1 },
		"NVLink too large":      func(i *Inventory) { i.Slices[0].NVLink = maxLocality + 1 },
		"low gamma":             func(i *Inventory) { i.Rules.GammaPercent = 99 },
		"gamma in per mille":    func(i *Inventory) { i.Rules.GammaPercent = 1500 },
		"no window":             func(i *Inventory) { i.Rules.Window.Duration = 0 },
		"short window":          func(i *Inventory) { i.Rules.Window.Duration = 5 * time.Millisecond },
		"window and a second":   func(i *Inventory) { i.Rules.Window.Duration = 30 * time.Millisecond },
		"many slices":           func(i *Inventory) { *i = manySlices(MaxSlices + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			inv := testInventory()
			spoil(&inv)
			_, err := EncodeInventory(inv)
			wantMalformed(t, err)
		})
	}
}

func TestLargestInventory(t *testing.T) {
	text, err := EncodeInventory(manySlices(MaxSlices))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeInventory(text); err != nil || len(got.Slices) != MaxSlices {
		t.Errorf("%d slices, %v", len(got.Slices), err)
	}
	t.Logf("%d bytes of %d", len(text), MaxInventoryBytes)
}

func TestInventoryOf(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, present, err := InventoryOf(node); present || err != nil {
		t.Errorf("a plain node has an inventory: %v, %v", present, err)
	}
	node.Annotations = map[string]string{AnnotationInventory: golden(t, "inventory.json")}
	if inv, present, err := InventoryOf(node); !present || err != nil || len(inv.Slices) != 3 {
		t.Errorf("InventoryOf = %+v, %v, %v", inv, present, err)
	}
	node.Annotations[AnnotationInventory] = ""
	_, present, err := InventoryOf(node)
	if !present {
		t.Error("a malformed inventory is not present")
	}
	wantMalformed(t, err)
}

func TestNodeResources(t *testing.T) {
	inv := testInventory()
	want := v1.ResourceList{
		ResourceVGPU: quantity(36), ResourceMemory: quantity(143771 + 2*16384), ResourceSMTime: quantity(30000), ResourceSM: quantity(3600), ResourceQuota: quantity(3600),
	}
	if diff := cmp.Diff(want, NodeResources(inv)); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	inv.Slices[0].Healthy = false
	if diff := cmp.Diff(want, NodeResources(inv)); diff != "" {
		t.Errorf("health changed the resources:\n%s", diff)
	}
	if got := NodeResources(Inventory{Slices: []Slice{{}}})[ResourceVGPU]; got.Value() != DefaultMaxShares {
		t.Errorf("a slice has %v device IDs by default", got.Value())
	}
}

func manySlices(n int) Inventory {
	var inv Inventory
	for i := range n {
		id := fmt.Sprintf("%0*d", maxIDLength, i)
		inv.Slices = append(inv.Slices, Slice{ID: id, Device: id, Model: strings.Repeat("m", 63), SMs: MaxSMs, MemoryMiB: 1 << 30,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
			Reason:  Reason(strings.Repeat("r", maxReason)), Reserve: 1000, MaxShares: 60, NUMA: new(maxLocality), NVLink: maxLocality})
	}
	return inv
}

func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

func wantMalformed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrMalformed) {
		t.Fatalf("error is %v, want ErrMalformed", err)
	}
	if len(err.Error()) > 1024 {
		t.Errorf("error has %d bytes, too many for an event", len(err.Error()))
	}
}
