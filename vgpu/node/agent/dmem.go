package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// unlimited is a container whose device memory the driver does not limit yet.
type unlimited struct {
	grant, container string // IDs
	cgroup, gpu      string
	limit            share.Bytes
}

// unlimitedAtOnce is how many wait for the driver's program.
const unlimitedAtOnce = 64

// driverLimit is what the driver has confirmed, of the container that has the grant now.
type driverLimit struct {
	container string // ID
	limit     share.Bytes
}

// pathOf is the cgroup of a process's container.
func pathOf(pid int) (string, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return "", err
	}
	return m.ContainerPath()
}

// memoryLoop lets the driver limit the memory of containers, one after another, as long as its program answers.
func (a *Agent) memoryLoop(ctx context.Context) {
	if a.Memory == nil {
		return
	}
	probe := question[struct{}]{call: func() (none struct{}, err error) { return none, a.Memory.Available(ctx) }}
	_, err := probe.ask(ctx, memoryPatience)
	a.metrics.dmem.Store(err == nil)
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case u := <-a.asks:
			err = a.limitMemory(ctx, u)
		}
	}
	a.metrics.dmem.Store(false)
	a.Log.Info("device memory is limited by hook and MPS alone", "err", err)
}

// memoryPatience is longer than the driver's program may take: one that hangs in the driver does not even end when it is killed.
const memoryPatience = time.Minute

// limitMemory gives an error only where nothing more can be asked. What is refused is tried again at the next look.
func (a *Agent) limitMemory(ctx context.Context, u unlimited) error {
	if a.limited(u) {
		return nil
	}
	ask := question[share.Bytes]{call: func() (share.Bytes, error) { return a.Memory.Limit(ctx, u.cgroup, u.gpu, u.limit) }}
	limit, err := ask.ask(ctx, memoryPatience)
	if errors.Is(err, errHung) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		a.Log.Error("limit the device memory of a container", "grant", u.grant, "cgroup", u.cgroup, "err", err)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.containers[u.grant] != nil {
		a.confirmed[u.grant] = driverLimit{u.container, limit}
		signal(a.report)
	}
	return nil
}

func (a *Agent) limited(u unlimited) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.confirmed[u.grant].container == u.container
}

// limitAll asks for the limits of the containers whose processes are on a slice for the first time. What finds no place in the queue
// is asked for at the next look.
func (g *guard) limitAll(known []watchdog.Process) {
	if !g.metrics.dmem.Load() {
		return
	}
	for _, p := range known {
		if u, ok := g.unlimitedOf(p); ok {
			select {
			case g.asks <- u:
			default:
			}
		}
	}
}

// unlimitedOf is the container of a process, where the driver can limit its memory and does not: not inside of MIG instances.
func (g *guard) unlimitedOf(p watchdog.Process) (u unlimited, ok bool) {
	c, err := g.ContainerOf(p.PID)
	if err != nil {
		return u, false
	}
	path, err := g.PathOf(p.PID)
	if err != nil {
		return u, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, granted := range g.book.On(p.Slice) {
		if string(granted.UID) != c.PodUID || granted.Container != p.Container || granted.Class() == share.Exclusive ||
			g.profileOf(&granted) != "" || g.confirmed[granted.ID()].container == c.ID {
			continue
		}
		return unlimited{granted.ID(), c.ID, path, p.Slice, granted.VGPUs[0].Share.Memory + mps.ContextMemory}, true
	}
	return u, false
}

// memoryOf says by what the device memory of a container on a shared slice is limited, the strongest first. The caller holds the lock.
func (a *Agent) memoryOf(g *grant.Grant) string {
	by := "hook, " + a.mpsOf(g)
	if l, ok := a.confirmed[g.ID()]; ok {
		return fmt.Sprintf("dmem (%d MiB), %s", l.limit/share.MiB, by)
	}
	return by
}
