package kube

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestGrants(t *testing.T) {
	asked := share.Share{SMRequest: 240, SMLimit: 480, QuotaRequest: 1000, QuotaLimit: 1000, Memory: share.MiB}
	request := share.Request{Containers: []share.Container{{Name: "a", VGPUs: 2, Share: asked}}}
	placement := func(edit func(*PlacedContainer)) Placement {
		c := PlacedContainer{Name: "a", VGPUs: []PlacedVGPU{{Slice: "x", Share: asked}, {Slice: "y", Share: asked}}}
		edit(&c)
		return Placement{Containers: []PlacedContainer{c}}
	}
	tests := map[string]struct {
		edit func(*PlacedContainer)
		want bool
	}{
		"as asked":        {func(*PlacedContainer) {}, true},
		"another limit":   {func(c *PlacedContainer) { c.VGPUs[0].Share.SMLimit = 240 }, true},
		"more SMs":        {func(c *PlacedContainer) { c.VGPUs[1].Share.SMRequest = 1000 }, false},
		"less time":       {func(c *PlacedContainer) { c.VGPUs[0].Share.QuotaRequest = 500 }, false},
		"other memory":    {func(c *PlacedContainer) { c.VGPUs[0].Share.Memory++ }, false},
		"a vGPU too few":  {func(c *PlacedContainer) { c.VGPUs = c.VGPUs[:1] }, false},
		"other container": {func(c *PlacedContainer) { c.Name = "b" }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Satisfies(placement(tt.edit), request); got != tt.want {
				t.Errorf("granted %v, want %v", got, tt.want)
			}
		})
	}
	if Satisfies(Placement{}, request) {
		t.Error("a placement without containers grants a share")
	}
}
