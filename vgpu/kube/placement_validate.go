package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds that Kubernetes sets on names.
const (
	maxNodeName      = 253
	maxContainerName = 63
	maxUID           = 64
)

// Validate returns an error for a placement that gshare's scheduler could not have made for any inventory and pod. Every error wraps
// ErrMalformed.
func (p Placement) Validate() error {
	if err := cmp.Or(p.checkHead(), share.ValidateWeights(p.Weights), share.ValidateAntiAffinity(p.AntiAffinity)); err != nil {
		return malformedError("placement", "%v", err)
	}
	vgpus := 0
	for i := range p.Containers {
		c := &p.Containers[i]
		if err := c.check(); err != nil {
			return malformedError("placement", "container %.64q: %v", c.Name, err)
		}
		if slices.ContainsFunc(p.Containers[:i], func(o PlacedContainer) bool { return o.Name == c.Name }) {
			return malformedError("placement", "container %q is there twice", c.Name)
		}
		if vgpus += len(c.VGPUs); vgpus > share.MaxVGPUs {
			return malformedError("placement", "more than %d vGPUs in one pod", share.MaxVGPUs)
		}
	}
	return nil
}

func (p Placement) checkHead() error {
	switch {
	case !isPlainName(p.Node, maxNodeName):
		return fmt.Errorf("%.64q is not the name of a node", p.Node)
	case !isPlainName(string(p.UID), maxUID):
		return fmt.Errorf("%.64q is not the UID of a pod", string(p.UID))
	case p.Model != Slots && p.Model != Rectangles:
		return fmt.Errorf("%.64q is neither of the models slots, rectangles", string(p.Model))
	case len(p.Containers) == 0:
		return errors.New("no container is placed")
	}
	return nil
}

func (c *PlacedContainer) check() error {
	if !isPlainName(c.Name, maxContainerName) {
		return errors.New("the name is not that of a container")
	}
	if len(c.VGPUs) == 0 {
		return errors.New("no vGPU is placed")
	}
	if err := (share.Container{Name: c.Name, VGPUs: len(c.VGPUs), Share: c.VGPUs[0].Share}).Validate(); err != nil {
		return err
	}
	for i := range c.VGPUs {
		if err := c.checkVGPU(i); err != nil {
			return fmt.Errorf("vGPU %d: %w", i, err)
		}
	}
	return nil
}

// checkVGPU checks the i-th vGPU of the container: its slice must differ from those of the vGPUs before it, and its share and priority
// must equal those of the first vGPU, whose share has been validated.
func (c *PlacedContainer) checkVGPU(i int) error {
	v := &c.VGPUs[i]
	switch {
	case !isPlainName(v.Slice, maxIDLength):
		return fmt.Errorf("slice %.64q is not a UUID", v.Slice)
	case slices.ContainsFunc(c.VGPUs[:i], func(o PlacedVGPU) bool { return o.Slice == v.Slice }):
		return fmt.Errorf("slice %q already has a vGPU of this container", v.Slice)
	case v.Share != c.VGPUs[0].Share || v.Priority != c.VGPUs[0].Priority:
		return errors.New("share or priority differ from those of vGPU 0")
	case !v.Priority.Valid():
		return fmt.Errorf("priority %.64q is neither slo nor best-effort", string(v.Priority))
	}
	return v.Share.ValidateFor(v.Class)
}
