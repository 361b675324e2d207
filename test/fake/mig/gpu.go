// Package mig is a fake GPU in MIG mode. It refuses what hardware refuses: overlaps, placements that the driver does not list, a second
// instance with media engines, and removal of instances in use. Its calls can be made to fail before or after they take effect, or to hang. It
// can reboot, and its state can outlive a process that is killed. It implements partition.Device and the functions of NVML.
package mig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// GPU is a fake GPU in MIG mode. It is safe for concurrent use; like a driver, it handles one call after another. It has many methods
// because it implements the whole MIG part of the driver, and its faults.
type GPU struct {
	uuid  string
	model *mig.Model

	mu        sync.Mutex // guards the fields below
	instances []*instance
	faults    faults
	steps     []geometry.Step // steps that took effect
	file      *os.File        // to which steps are appended, or nil
}

// instance is a GPU instance: a part of the GPU with memory of its own, which holds compute instances.
type instance struct {
	mig.Instance
	id      int
	compute []*compute
}

// compute is a compute instance of a GPU instance.
type compute struct {
	id, slices int
	processes  int
}

// New returns a GPU of this model without instances.
func New(uuid string, m *mig.Model) *GPU { return &GPU{uuid: uuid, model: m} }

// Model returns the GPU's model, with its MIG profiles.
func (g *GPU) Model() *mig.Model { return g.model }

// Instances returns the GPU instances that exist.
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

// report returns a GPU instance in the form of partition.Device.
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

// uuidOf returns the UUID of a compute instance. As on a real GPU, an instance that is created again in the same way has the same UUID.
func (g *GPU) uuidOf(i *instance, c *compute) string {
	return fmt.Sprintf("MIG-%s-%d-%d", g.uuid, i.id, c.id)
}

// Apply creates or destroys an instance.
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
	i := g.findInstance(s.Instance)
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

// findInstance returns the GPU instance with this profile name and start, or nil. It ignores the profile's other fields, since the caller may
// have obtained them through NVML.
func (g *GPU) findInstance(at mig.Instance) *instance {
	for _, i := range g.instances {
		if i.Profile.Name == at.Profile.Name && i.Start == at.Start {
			return i
		}
	}
	return nil
}

// destroyWhole destroys the compute instance that occupies a whole GPU instance.
func (g *GPU) destroyWhole(i *instance) error {
	for _, c := range i.compute {
		if c.slices == i.Profile.Compute {
			return g.destroyCompute(i, c)
		}
	}
	return partition.ErrNotFound
}

// Steps returns the creations and destructions of instances that took effect, without refused or failed ones.
func (g *GPU) Steps() []geometry.Step {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.steps)
}

// record appends a step that took effect to the list and, if there is one, to the file.
func (g *GPU) record(a geometry.Action, i *instance) {
	s := geometry.Step{Action: a, Instance: i.Instance}
	g.steps = append(g.steps, s)
	g.appendStep(s)
}

func byStart(a, b *instance) int { return cmp.Compare(a.Start, b.Start) }

// Events that are not caused by the code under test.

// Start simulates a process that starts on the first compute instance of a GPU instance, which must exist.
func (g *GPU) Start(at mig.Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.findInstance(at).compute[0].processes++
}

// Stop ends a process that Start started on the GPU instance.
func (g *GPU) Stop(at mig.Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.findInstance(at).compute[0].processes--
}

// CreateForeign creates a GPU instance as an administrator would, with compute instances of the given numbers of slices.
func (g *GPU) CreateForeign(at mig.Instance, compute ...int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, err := g.create(at)
	for _, slices := range compute {
		if err == nil {
			_, err = g.createCompute(i, slices)
		}
	}
	return err
}

// Reboot ends all processes and removes all instances, as a reboot of the node or a reset of the GPU does.
func (g *GPU) Reboot() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.instances = nil
}

// storedStep is a line of the file from which a later process restores the fake GPU.
type storedStep struct {
	Action  geometry.Action
	Profile string
	Start   int
}

// Stored returns a GPU in the state in which an earlier process left it: it repeats the steps in the named file, and appends further steps to
// it.
func Stored(uuid string, m *mig.Model, name string) (*GPU, error) {
	g := New(uuid, m)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(file); ; {
		var a storedStep
		if err := lines.Decode(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		p, _ := m.Profile(a.Profile)
		if err := g.Apply(geometry.Step{Action: a.Action, Instance: mig.Instance{Profile: p, Start: a.Start}}); err != nil {
			return nil, err
		}
	}
	g.file = file
	return g, nil
}

// appendStep appends a step to the file from which a later process restores the GPU.
func (g *GPU) appendStep(s geometry.Step) {
	if g.file == nil {
		return
	}
	if err := json.NewEncoder(g.file).Encode(storedStep{s.Action, s.Profile.Name, s.Start}); err != nil {
		panic(err) // the file is gone
	}
}

// Fault describes how an injected failure of a driver call behaves.
type Fault struct {
	Err   error         // returned error; nil: the device's own result
	After bool          // the call takes effect, if the device allows it, and then fails
	Hang  chan struct{} // the call, and with it the whole driver, blocks until Hang is closed; nil: it does not block
	Began chan struct{} // closed when the call begins to block
}

// faults counts the calls to the GPU, and holds the faults to inject into later ones.
type faults struct {
	calls  int // number of calls so far
	byCall map[int]Fault
}

// Fail injects a fault into a future call, where 0 is the next one. Each listing of instances, each creation and each destruction counts as a
// call.
func (g *GPU) Fail(call int, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.byCall == nil {
		g.faults.byCall = map[int]Fault{}
	}
	g.faults.byCall[g.faults.calls+call] = f
}

// call counts a call to the GPU, and executes act or the fault that is injected for the call.
func (f *faults) call(act func() error) error {
	fault, ok := f.byCall[f.calls]
	f.calls++
	if !ok {
		return act()
	}
	if fault.Hang != nil {
		close(fault.Began)
		<-fault.Hang
	}
	if fault.Err == nil {
		return act()
	}
	if fault.After {
		_ = act() // the caller gets the fault's error instead
	}
	return fault.Err
}
