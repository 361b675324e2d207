package kube

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// placementText is the JSON form of a Placement. It is a type of its own so that the types of package share need no JSON tags.
type placementText struct {
	Version    int             `json:"v"`
	Node       string          `json:"node"`
	UID        types.UID       `json:"uid"`
	Model      FitModel        `json:"model"`
	Containers []containerText `json:"containers"`
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
	p := Placement{Node: t.Node, UID: t.UID, Model: t.Model, Containers: make([]PlacedContainer, len(t.Containers))}
	for i, c := range t.Containers {
		p.Containers[i] = PlacedContainer{Name: c.Name, VGPUs: make([]PlacedVGPU, len(c.VGPUs))}
		for j, v := range c.VGPUs {
			p.Containers[i].VGPUs[j] = v.vgpu()
		}
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
	t := placementText{Version: formatVersion, Node: p.Node, UID: p.UID, Model: p.Model, Containers: make([]containerText, len(p.Containers))}
	for i, c := range p.Containers {
		t.Containers[i] = containerText{Name: c.Name, VGPUs: make([]vgpuText, len(c.VGPUs))}
		for j, v := range c.VGPUs {
			t.Containers[i].VGPUs[j] = textOfVGPU(v)
		}
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
