package mig

import (
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// errArgument becomes NVML's return code INVALID_ARGUMENT.
var errArgument = errors.New("invalid argument")

// create creates a GPU instance. Like the driver, it returns ErrInsufficientResources if the placement is occupied or any other resource is
// insufficient. It looks up the profile by name, since the caller may have obtained its own copy through NVML.
func (g *GPU) create(at mig.Instance) (*instance, error) {
	p, ok := g.model.Profile(at.Profile.Name)
	if !ok {
		return nil, errArgument
	}
	at.Profile = p
	if !slices.Contains(at.Profile.Starts, at.Start) {
		return nil, errArgument
	}
	i := &instance{Instance: at, id: lowestFree(len(g.instances), func(n int) bool { return g.byID(n) != nil })}
	g.instances = append(g.instances, i)
	if g.exceedsCapacity() {
		g.instances = g.instances[:len(g.instances)-1]
		return nil, partition.ErrInsufficientResources
	}
	slices.SortFunc(g.instances, byStart)
	g.record(geometry.CreateGPU, i)
	return i, nil
}

// exceedsCapacity reports whether the GPU instances overlap in a memory slice, or together need too many compute slices or media engines.
func (g *GPU) exceedsCapacity() bool {
	memory, compute, media := make([]int, g.model.Memory), 0, 0
	for _, i := range g.instances {
		for s := range i.Profile.Memory {
			memory[i.Start+s]++
		}
		compute += i.Profile.Compute
		if i.Profile.Media {
			media++
		}
	}
	return slices.Max(memory) > 1 || compute > g.model.Compute || media > 1
}

func (g *GPU) createCompute(i *instance, slices int) (*compute, error) {
	used := 0
	for _, c := range i.compute {
		used += c.slices
	}
	if used+slices > i.Profile.Compute {
		return nil, partition.ErrInsufficientResources
	}
	c := &compute{id: lowestFree(len(i.compute), func(n int) bool { return i.byID(n) != nil }), slices: slices}
	i.compute = append(i.compute, c)
	g.record(geometry.CreateCompute, i)
	return c, nil
}

func (g *GPU) destroyCompute(i *instance, c *compute) error {
	n := slices.Index(i.compute, c)
	if n < 0 {
		return partition.ErrNotFound
	}
	if c.processes > 0 {
		return partition.ErrInUse
	}
	i.compute = slices.Delete(i.compute, n, n+1)
	g.record(geometry.DestroyCompute, i)
	return nil
}

func (g *GPU) destroy(i *instance) error {
	n := slices.Index(g.instances, i)
	if n < 0 {
		return partition.ErrNotFound
	}
	if len(i.compute) > 0 {
		return partition.ErrInUse
	}
	g.instances = slices.Delete(g.instances, n, n+1)
	g.record(geometry.DestroyGPU, i)
	return nil
}

// lowestFree returns the lowest ID that is not taken. n is the number of taken IDs.
func lowestFree(n int, taken func(int) bool) int {
	for id := range n {
		if !taken(id) {
			return id
		}
	}
	return n
}

func (g *GPU) byID(id int) *instance {
	for _, i := range g.instances {
		if i.id == id {
			return i
		}
	}
	return nil
}

func (i *instance) byID(id int) *compute {
	for _, c := range i.compute {
		if c.id == id {
			return c
		}
	}
	return nil
}
