// Package mig is a GPU in MIG mode for tests. It refuses what hardware refuses: overlaps, places that the driver does not
// list, a second instance with media engines, and removing what is in use. It can fail before or after it has acted, hang,
// and reboot, and outlive a process that is killed. It speaks as partition.Device, and as NVML.
package mig

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// GPU is one GPU. It serves concurrent callers, as a driver does: one after another.
type GPU struct {
	uuid  string
	model *mig.Model

	mu        sync.Mutex // guards the following
	instances []*instance
	faults    faults
	acts      []geometry.Step
	file      *os.File // where they are noted; nil: nowhere
}

type instance struct {
	mig.Instance
	id      int
	compute []*compute
}

type compute struct {
	id, slices int
	processes  int
}

// New gives a GPU without instances. Its places are those that the model lists; what of them is free, it counts itself.
func New(uuid string, m *mig.Model) *GPU { return &GPU{uuid: uuid, model: m} }

// Model is what the GPU was made with.
func (g *GPU) Model() *mig.Model { return g.model }

// Instances implements partition.Device.
func (g *GPU) Instances() (found []partition.Instance, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	err = g.faults.pass(func() error {
		for _, i := range g.instances {
			found = append(found, g.report(i))
		}
		return nil
	})
	return found, err
}

func (g *GPU) report(i *instance) partition.Instance {
	r := partition.Instance{Instance: i.Instance, Compute: len(i.compute)}
	for _, c := range i.compute {
		r.Busy = r.Busy || c.processes > 0
		if c.slices == i.Profile.Compute {
			r.UUID = g.uuidOf(i, c)
		}
	}
	return r
}

// uuidOf is like the driver's: the same after an instance was made again in the same way.
func (g *GPU) uuidOf(i *instance, c *compute) string {
	return fmt.Sprintf("MIG-%s-%d-%d", g.uuid, i.id, c.id)
}

// Do implements partition.Device.
func (g *GPU) Do(s geometry.Step) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.faults.pass(func() error { return g.take(s) })
}

func (g *GPU) take(s geometry.Step) error {
	if s.Action == geometry.CreateGPU {
		_, err := g.create(s.Instance)
		return err
	}
	i := g.at(s.Instance)
	if i == nil {
		return partition.ErrNotFound
	}
	switch s.Action {
	case geometry.CreateCompute:
		_, err := g.createCompute(i, i.Profile.Compute)
		return err
	case geometry.DestroyCompute:
		return g.destroyWhole(i)
	}
	return g.destroy(i)
}

// at finds an instance by name and place, as the caller's profile may be one that NVML told.
func (g *GPU) at(at mig.Instance) *instance {
	for _, i := range g.instances {
		if i.Profile.Name == at.Profile.Name && i.Start == at.Start {
			return i
		}
	}
	return nil
}

func (g *GPU) destroyWhole(i *instance) error {
	for _, c := range i.compute {
		if c.slices == i.Profile.Compute {
			return g.destroyCompute(i, c)
		}
	}
	return partition.ErrNotFound
}

// Acts lists what was done to the instances; refusals and failures before acting are left out.
func (g *GPU) Acts() []geometry.Step {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.acts)
}

func (g *GPU) acted(a geometry.Action, i *instance) {
	s := geometry.Step{Action: a, Instance: i.Instance}
	g.acts = append(g.acts, s)
	g.note(s)
}

func byStart(a, b *instance) int { return cmp.Compare(a.Start, b.Start) }
