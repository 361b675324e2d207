// Package mig is a fake GPU in MIG mode. It refuses what hardware refuses: overlaps, placements that the driver does not list, a second
// instance with media engines, and removal of what is in use. Its calls can fail before or after they took effect, or hang; it can reboot, and
// outlive a process that is killed. It implements partition.Device and the functions of NVML.
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

// GPU is a fake GPU. It is safe for concurrent use; like a driver, it serves one call after another. It has many methods because it
// implements the driver's whole interface for MIG, and its faults.
type GPU struct {
	uuid  string
	model *mig.Model

	mu        sync.Mutex // guards the following
	instances []*instance
	faults    faults
	steps     []geometry.Step // that took effect
	file      *os.File        // to which they are appended, or nil
}

// instance is a GPU instance.
type instance struct {
	mig.Instance
	id      int
	compute []*compute
}

// compute is a compute instance.
type compute struct {
	id, slices int
	processes  int
}

// New returns a GPU without instances and with the placements of the model. It computes by itself which of them are free.
func New(uuid string, m *mig.Model) *GPU { return &GPU{uuid: uuid, model: m} }

// Model returns the model that was passed to New.
func (g *GPU) Model() *mig.Model { return g.model }

// Instances implements partition.Device.
func (g *GPU) Instances() (found []partition.Instance, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	err = g.faults.call(func() error {
		for _, i := range g.instances {
			found = append(found, g.report(i))
		}
		return nil
	})
	return found, err
}

// report returns an instance as partition.Device does.
func (g *GPU) report(i *instance) partition.Instance {
	r := partition.Instance{Instance: i.Instance, ComputeInstances: len(i.compute)}
	for _, c := range i.compute {
		r.Busy = r.Busy || c.processes > 0
		if c.slices == i.Profile.Compute {
			r.UUID = g.uuidOf(i, c)
		}
	}
	return r
}

// uuidOf returns the UUID of a compute instance. Like the driver's, it is the same after the instance was created again in the same way.
func (g *GPU) uuidOf(i *instance, c *compute) string {
	return fmt.Sprintf("MIG-%s-%d-%d", g.uuid, i.id, c.id)
}

// Apply implements partition.Device.
func (g *GPU) Apply(s geometry.Step) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.faults.call(func() error { return g.apply(s) })
}

func (g *GPU) apply(s geometry.Step) error {
	if s.Action == geometry.CreateGPU {
		_, err := g.create(s.Instance)
		return err
	}
	i := g.find(s.Instance)
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

// find returns an instance by the name of its profile and its start, since the caller's profile may be one that was read through NVML.
func (g *GPU) find(at mig.Instance) *instance {
	for _, i := range g.instances {
		if i.Profile.Name == at.Profile.Name && i.Start == at.Start {
			return i
		}
	}
	return nil
}

// destroyWhole destroys the compute instance that has all of a GPU instance.
func (g *GPU) destroyWhole(i *instance) error {
	for _, c := range i.compute {
		if c.slices == i.Profile.Compute {
			return g.destroyCompute(i, c)
		}
	}
	return partition.ErrNotFound
}

// Steps returns the steps that took effect, without those that were refused or failed.
func (g *GPU) Steps() []geometry.Step {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.steps)
}

// record appends a step to the list, and to the file if there is one.
func (g *GPU) record(a geometry.Action, i *instance) {
	s := geometry.Step{Action: a, Instance: i.Instance}
	g.steps = append(g.steps, s)
	g.store(s)
}

func byStart(a, b *instance) int { return cmp.Compare(a.Start, b.Start) }
