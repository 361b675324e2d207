package kube

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MaxPlacementBytes is the maximum length of a placement annotation. The API server does not limit the annotations of a Binding.
const MaxPlacementBytes = 16 << 10

// FitModel is the name of the packing model, slots or rectangles, under which a placement was made.
type FitModel string

// The packing models.
const (
	Slots      FitModel = "slots"
	Rectangles FitModel = "rectangles"
)

// Placement assigns a slice and a share to each vGPU of a pod. The scheduler writes it once, with the Binding.
type Placement struct {
	Node       string
	UID        types.UID // of the pod
	Model      FitModel
	Containers []PlacedContainer // only those that asked for a share
}

// PlacedContainer holds the placed vGPUs of one container; the index in VGPUs is the number of the vGPU inside the container.
type PlacedContainer struct {
	Name  string
	VGPUs []PlacedVGPU // equal shares on different slices
}

// PlacedVGPU is one share on one slice, with everything that the node agent needs to admit it again.
type PlacedVGPU struct {
	Slice    string // ID in the inventory of the node
	Class    share.Isolation
	Priority share.Priority
	Share    share.Share
}

// DecodePlacement parses the text of a placement annotation and refuses unknown or repeated fields. Every error wraps ErrMalformed.
func DecodePlacement(text string) (Placement, error) {
	if len(text) > MaxPlacementBytes {
		return Placement{}, malformedError("placement", "%d bytes are more than %d", len(text), MaxPlacementBytes)
	}
	var read placementText
	if err := decodeStrict(text, &read); err != nil {
		return Placement{}, malformedError("placement", "%v", err)
	}
	if read.Version != formatVersion {
		return Placement{}, malformedError("placement", "version %d is not %d", read.Version, formatVersion)
	}
	p := read.placement()
	if err := p.Validate(); err != nil {
		return Placement{}, err
	}
	return p, nil
}

// EncodePlacement returns the annotation text of a valid placement; DecodePlacement returns an equal placement. Every error wraps
// ErrMalformed.
func EncodePlacement(p Placement) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	// What is valid stays below the bound on bytes: TestLargestPlacement.
	text, err := json.Marshal(textOf(p))
	if err != nil {
		return "", malformedError("placement", "%v", err)
	}
	return string(text), nil
}
