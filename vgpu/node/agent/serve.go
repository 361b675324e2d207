package agent

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// errInstance is of an instance that is made on demand, while its GPU is not open, or where it is gone.
var errInstance = errors.New("the instance is not known")

// prepare lets the shares of a container join their slices. Nobody can connect yet.
func (a *Agent) prepare(g *grant.Grant) error {
	spec := tokenserver.Spec{
		ID: g.ID(), Dir: a.dir(g.ID()), Admit: a.admitter(g.Owner), Empty: func() { signal(a.wake) },
	}
	for i, v := range g.VGPUs {
		uuid := a.uuid(v.Slice)
		if uuid == "" {
			return fmt.Errorf("%s: %w", v.Slice, errInstance)
		}
		slice, err := a.slice(v.Slice)
		if err != nil {
			return err
		}
		spec.VGPUs = append(spec.VGPUs, tokenserver.VGPU{
			Share: v.Share, Slice: slice, UUID: uuid, Index: i, Elastic: v.Class == share.Elastic, Priority: v.Priority,
		})
	}
	container, err := a.server.Prepare(spec)
	if err != nil {
		return err
	}
	a.containers[g.ID()] = container
	return nil
}

// slice gives the loop of a slice, which is there for good once it is.
func (a *Agent) slice(id string) (*tokenserver.Slice, error) {
	if s := a.slices[id]; s != nil {
		return s, nil
	}
	tokens, err := a.Config.Tokens()
	if err != nil {
		return nil, err
	}
	a.slices[id] = a.server.NewSlice(tokens)
	return a.slices[id], nil
}

// unserve takes a container out of service, with its directory.
func (a *Agent) unserve(id string) {
	if c := a.containers[id]; c != nil {
		delete(a.containers, id)
		delete(a.limits, id)
		delete(a.confirmed, id)
		if err := c.Close(); err != nil {
			a.Log.Error("take a container out of service", "grant", id, "err", err)
		}
	}
}

// admitter tells the processes of a pod by what the kernel says of them. Within the pod, the container is told by the socket:
// only that container has it.
func (a *Agent) admitter(owner grant.Owner) func(process.Process) error {
	return func(p process.Process) error {
		c, err := a.ContainerOf(p.PID)
		if err != nil {
			return err
		}
		if c.PodUID != string(owner.UID) {
			return fmt.Errorf("it is of pod %.36s, the share of pod %s", c.PodUID, owner.UID)
		}
		return nil
	}
}
