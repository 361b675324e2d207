package kube

import (
	"cmp"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MaxPlacementBytes is the maximum length of a placement annotation. The API server does not limit the annotations of a Binding.
const MaxPlacementBytes = 20 << 10

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
	UID        types.UID // UID of the pod
	Model      FitModel
	Containers []PlacedContainer // only the containers that request a share
	Weights    []share.Weights   // weights that each of the slices is to hold, sorted by digest

	AntiAffinity string // the pod's key; no two shares of a namespace with the same key are on one device; empty if it has none
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
	// A valid placement stays below the bound on bytes, which TestLargestPlacement verifies.
	text, err := json.Marshal(textOf(p))
	if err != nil {
		return "", malformedError("placement", "%v", err)
	}
	return string(text), nil
}

// placementText is the JSON form of a Placement. It is a type of its own so that the types of package share need no JSON tags.
type placementText struct {
	Version    int             `json:"v"`
	Node       string          `json:"node"`
	UID        types.UID       `json:"uid"`
	Model      FitModel        `json:"model"`
	Containers []containerText `json:"containers"`
	Weights    []weightsText   `json:"weights,omitempty"`

	AntiAffinity string `json:"antiAffinity,omitempty"`
}

type weightsText struct {
	Digest share.Digest `json:"digest"`
	Memory share.Bytes  `json:"memory"`
}

type containerText struct {
	Name  string     `json:"name"`
	VGPUs []vgpuText `json:"vgpus"`
}

// vgpuText is the JSON form of a PlacedVGPU: SMs and quota in per-mille, memory in bytes. A limit that is omitted equals its request.
type vgpuText struct {
	Slice      string          `json:"slice"`
	Class      share.Isolation `json:"class"`
	Priority   share.Priority  `json:"priority"`
	SM         share.PerMille  `json:"sm"`
	SMLimit    share.PerMille  `json:"smLimit,omitzero"`
	Quota      share.PerMille  `json:"quota"`
	QuotaLimit share.PerMille  `json:"quotaLimit,omitzero"`
	Memory     share.Bytes     `json:"memory"`
}

func (t placementText) placement() Placement {
	p := Placement{
		Node: t.Node, UID: t.UID, Model: t.Model, Containers: make([]PlacedContainer, len(t.Containers)), AntiAffinity: t.AntiAffinity,
	}
	for i, c := range t.Containers {
		p.Containers[i] = PlacedContainer{Name: c.Name, VGPUs: make([]PlacedVGPU, len(c.VGPUs))}
		for j, v := range c.VGPUs {
			p.Containers[i].VGPUs[j] = v.vgpu()
		}
	}
	for _, w := range t.Weights {
		p.Weights = append(p.Weights, share.Weights(w))
	}
	return p
}

func (t vgpuText) vgpu() PlacedVGPU {
	return PlacedVGPU{Slice: t.Slice, Class: t.Class, Priority: t.Priority, Share: share.Share{
		SMRequest:    t.SM,
		SMLimit:      cmp.Or(t.SMLimit, t.SM),
		QuotaRequest: t.Quota,
		QuotaLimit:   cmp.Or(t.QuotaLimit, t.Quota),
		Memory:       t.Memory,
	}}
}

func textOf(p Placement) placementText {
	t := placementText{
		Version: formatVersion, Node: p.Node, UID: p.UID, Model: p.Model, Containers: make([]containerText, len(p.Containers)),
		AntiAffinity: p.AntiAffinity,
	}
	for i, c := range p.Containers {
		t.Containers[i] = containerText{Name: c.Name, VGPUs: make([]vgpuText, len(c.VGPUs))}
		for j, v := range c.VGPUs {
			t.Containers[i].VGPUs[j] = textOfVGPU(v)
		}
	}
	for _, w := range p.Weights {
		t.Weights = append(t.Weights, weightsText(w))
	}
	return t
}

func textOfVGPU(v PlacedVGPU) vgpuText {
	return vgpuText{
		Slice: v.Slice, Class: v.Class, Priority: v.Priority,
		SM: v.Share.SMRequest, SMLimit: omitIfRequest(v.Share.SMLimit, v.Share.SMRequest),
		Quota: v.Share.QuotaRequest, QuotaLimit: omitIfRequest(v.Share.QuotaLimit, v.Share.QuotaRequest),
		Memory: v.Share.Memory,
	}
}

// omitIfRequest returns the limit, or zero, which JSON omits, if the limit equals the request.
func omitIfRequest(limit, request share.PerMille) share.PerMille {
	if limit == request {
		return 0
	}
	return limit
}
