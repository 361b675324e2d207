package mig

import "github.com/gshare-dev/gshare/vgpu/mig"

// What happens to a GPU besides the calls of a test's subject.

// Start starts a process on the first compute instance of a GPU instance that exists.
func (g *GPU) Start(at mig.Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at(at).compute[0].processes++
}

// Stop ends a process that was started.
func (g *GPU) Stop(at mig.Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at(at).compute[0].processes--
}

// Strange makes an instance as an administrator would, with a compute instance for each number of slices.
func (g *GPU) Strange(at mig.Instance, compute ...int) error {
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

// Reboot ends all processes and removes all instances: they do not survive a reset of the GPU.
func (g *GPU) Reboot() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.instances = nil
}
