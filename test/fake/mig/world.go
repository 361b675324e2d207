package mig

import "github.com/gshare-dev/gshare/vgpu/mig"

// Events that the code under test does not cause.

// Start simulates that a process starts on the first compute instance of a GPU instance, which must exist.
func (g *GPU) Start(at mig.Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.findInstance(at).compute[0].processes++
}

// Stop ends a process that Start has started on the GPU instance.
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
