package kube

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MaxPlacementBytes bounds the text of a placement. Annotations of a Binding escape the API server's own bound.
const MaxPlacementBytes = 16 << 10

// FitModel names the packing model under which a placement was made.
type FitModel string

// The packing models.
const (
	Slots      FitModel = "slots"
	Rectangles FitModel = "rectangles"
)

// Placement is the slice and share of each vGPU of a pod. The scheduler writes it once, with the Binding.
type Placement struct {
	Node       string
	UID        types.UID // of the pod
	Model      FitModel
	Containers []PlacedContainer // only those that asked for a share
}

// PlacedContainer is one container; the index in VGPUs is the number of the vGPU inside it.
type PlacedContainer struct {
	Name  string
	VGPUs []PlacedVGPU // equal shares on different slices
}

// PlacedVGPU is one share on one slice, with all that an agent needs to admit it again.
type PlacedVGPU struct {
	Slice    string // ID in the inventory of the node
	Class    share.Isolation
	Priority share.Priority
	Share    share.Share
}

// DecodePlacement reads a placement strictly. Every error wraps ErrMalformed.
func DecodePlacement(text string) (Placement, error) {
	if len(text) > MaxPlacementBytes {
		return Placement{}, malformed("placement", "%d bytes are more than %d", len(text), MaxPlacementBytes)
	}
	var read placementText
	if err := decodeStrict(text, &read); err != nil {
		return Placement{}, malformed("placement", "%v", err)
	}
	if read.Version != formatVersion {
		return Placement{}, malformed("placement", "version %d is not %d", read.Version, formatVersion)
	}
	p := read.placement()
	if err := p.Validate(); err != nil {
		return Placement{}, err
	}
	return p, nil
}

// EncodePlacement returns the annotation for a valid placement; DecodePlacement returns an equal placement. Every error wraps ErrMalformed.
func EncodePlacement(p Placement) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	// What is valid stays below the bound on bytes: TestLargestPlacement.
	text, err := json.Marshal(textOf(p))
	if err != nil {
		return "", malformed("placement", "%v", err)
	}
	return string(text), nil
}
