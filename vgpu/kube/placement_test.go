package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func testPlacement() Placement {
	timeShare := shareOf(240, 240, 400, 800, 8192)
	smShare := shareOf(500, 600, 1000, 1000, 1)
	return Placement{Node: "n1", UID: "uid-1", Model: Slots, Containers: []PlacedContainer{
		{Name: "main", VGPUs: []PlacedVGPU{{gpu0, share.MPS, share.SLO, timeShare}}},
		{Name: "side", VGPUs: []PlacedVGPU{{gpu0, share.Elastic, share.BestEffort, smShare}, {gpu1, share.Exclusive, share.BestEffort, smShare}}},
	}}
}

func TestPlacementGolden(t *testing.T) {
	want := golden(t, "placement.json")
	got, err := EncodePlacement(testPlacement())
	if err != nil || got != want {
		t.Errorf("EncodePlacement = %v\n%s\nwant\n%s", err, got, want)
	}
	p, err := DecodePlacement(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testPlacement(), p); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
}

func TestPlacementWithWeightsGolden(t *testing.T) {
	placed := testPlacement()
	placed.Weights = []share.Weights{{Digest: weightsA, Memory: 2634 * share.MiB}, {Digest: weightsB, Memory: share.MiB}}
	want := golden(t, "placement-weights.json")
	if got, err := EncodePlacement(placed); err != nil || got != want {
		t.Errorf("EncodePlacement = %v\n%s\nwant\n%s", err, got, want)
	}
	if p, err := DecodePlacement(want); err != nil || cmp.Diff(placed, p) != "" {
		t.Errorf("%v, placement (-want +got):\n%s", err, cmp.Diff(placed, p))
	}
}

func TestPlacementWithAntiAffinityGolden(t *testing.T) {
	placed := testPlacement()
	placed.AntiAffinity = "resnet-50"
	want := golden(t, "placement-antiaffinity.json")
	if got, err := EncodePlacement(placed); err != nil || got != want {
		t.Errorf("EncodePlacement = %v\n%s\nwant\n%s", err, got, want)
	}
	if p, err := DecodePlacement(want); err != nil || cmp.Diff(placed, p) != "" {
		t.Errorf("%v, placement (-want +got):\n%s", err, cmp.Diff(placed, p))
	}
}

func TestDecodePlacementRefusesText(t *testing.T) {
	good := golden(t, "placement.json")
	edit := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, text := range map[string]string{
		"empty":          "",
		"null":           "null",
		"no version":     edit(`"v":1,`, ""),
		"next version":   edit(`"v":1`, `"v":2`),
		"trailing":       good + "1",
		"unknown field":  edit(`"v":1`, `"v":1,"rank":0`),
		"unknown inside": edit(`"sm":240`, `"sm":240,"x":0`),
		"repeated field": edit(`"sm":240`, `"sm":240,"SM":20`),
		"negative":       edit(`"sm":240`, `"sm":-240`),
		"overflow":       edit(`"sm":240`, `"sm":4294967536`),
		"fraction":       edit(`"sm":240`, `"sm":24.5`),
		"no slice":       edit(gpu0, ""),
		"no memory":      edit(`"memory":8589934592`, `"memory":0`),
		"oversized":      good + strings.Repeat(" ", MaxPlacementBytes),
	} {
		t.Run(name, func(t *testing.T) {
			if text == good {
				t.Fatal("the edit changed nothing")
			}
			p, err := DecodePlacement(text)
			wantMalformed(t, err)
			if diff := cmp.Diff(Placement{}, p); diff != "" {
				t.Errorf("a refused placement is not empty: %s", diff)
			}
		})
	}
}

func TestPlacementRefusesValues(t *testing.T) {
	for name, spoil := range map[string]func(*Placement){
		"no node":            func(p *Placement) { p.Node = "" },
		"long node":          func(p *Placement) { p.Node = strings.Repeat("n", maxNodeName+1) },
		"no uid":             func(p *Placement) { p.UID = "" },
		"uid with quote":     func(p *Placement) { p.UID = `"` },
		"no model":           func(p *Placement) { p.Model = "" },
		"unknown model":      func(p *Placement) { p.Model = "triangles" },
		"no container":       func(p *Placement) { p.Containers = nil },
		"container, no name": func(p *Placement) { p.Containers[0].Name = "" },
		"long container":     func(p *Placement) { p.Containers[0].Name = strings.Repeat("c", maxContainerName+1) },
		"container twice":    func(p *Placement) { p.Containers[1].Name = "main" },
		"no vGPU":            func(p *Placement) { p.Containers[0].VGPUs = nil },
		"slice twice":        func(p *Placement) { p.Containers[1].VGPUs[1].Slice = gpu0 },
		"long slice":         func(p *Placement) { p.Containers[0].VGPUs[0].Slice = strings.Repeat("g", maxIDLength+1) },
		"any class":          func(p *Placement) { p.Containers[0].VGPUs[0].Class = "" },
		"swap of elastic":    func(p *Placement) { p.Containers[1].VGPUs[0].Class = share.Swap },
		"class not allowed":  func(p *Placement) { p.Containers[0].VGPUs[0].Class = share.Elastic },
		"priority":           func(p *Placement) { p.Containers[0].VGPUs[0].Priority = "" },
		"two priorities":     func(p *Placement) { p.Containers[1].VGPUs[1].Priority = share.SLO },
		"share":              func(p *Placement) { p.Containers[0].VGPUs[0].Share.Memory = -1 },
		"limit 0":            func(p *Placement) { p.Containers[0].VGPUs[0].Share.SMLimit = 0 },
		"unequal shares":     func(p *Placement) { p.Containers[1].VGPUs[1].Share.Memory++ },
		"quota on two": func(p *Placement) {
			p.Containers[1].VGPUs[0].Share, p.Containers[1].VGPUs[1].Share = p.Containers[0].VGPUs[0].Share, p.Containers[0].VGPUs[0].Share
		},
		"weights twice": func(p *Placement) {
			p.Weights = []share.Weights{{Digest: weightsA, Memory: 1}, {Digest: weightsA, Memory: 1}}
		},
		"weights of nothing": func(p *Placement) { p.Weights = []share.Weights{{Digest: weightsA}} },
		"weights, no digest": func(p *Placement) { p.Weights = []share.Weights{{Digest: "sha256:", Memory: 1}} },
		"anti-affinity":      func(p *Placement) { p.AntiAffinity = "a/b" },
		"many vGPUs":         func(p *Placement) { *p = manyVGPUs(share.MaxVGPUs + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlacement()
			spoil(&p)
			_, err := EncodePlacement(p)
			wantMalformed(t, err)
		})
	}
}

// Every valid placement can be written: the bound on bytes is above all others together.
func TestLargestPlacement(t *testing.T) {
	most := manyVGPUs(share.MaxVGPUs)
	for i := range share.MaxWeights {
		most.Weights = append(most.Weights, share.Weights{Digest: share.Digest(fmt.Sprintf("sha256:%064x", i)), Memory: share.MaxMemory})
	}
	most.AntiAffinity = strings.Repeat("a", 63)
	text, err := EncodePlacement(most)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodePlacement(text); err != nil {
		t.Error(err)
	}
	t.Logf("%d bytes of %d", len(text), MaxPlacementBytes)
}

// manyVGPUs places n containers of one vGPU each, every number and word as long as it gets.
func manyVGPUs(n int) Placement {
	p := Placement{Node: strings.Repeat("n", maxNodeName), UID: types.UID(strings.Repeat("u", maxUID)), Model: Rectangles}
	s := shareOf(999, 1000, 1000, 1000, share.MaxMemory/share.MiB)
	for i := range n {
		v := PlacedVGPU{Slice: fmt.Sprintf("%0*d", maxIDLength, i), Class: share.Exclusive, Priority: share.BestEffort, Share: s}
		p.Containers = append(p.Containers, PlacedContainer{Name: fmt.Sprintf("%0*d", maxContainerName, i), VGPUs: []PlacedVGPU{v}})
	}
	return p
}
