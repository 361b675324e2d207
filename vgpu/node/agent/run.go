package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// recallLimit is how long the start waits for the API server, and for GPUs to open, before it goes on without: the kubelet fails
// pods whose devices are not registered when it looks at them.
const recallLimit = 2 * time.Second

// Run is the life of an agent, until the context ends and the node is closed. What it has granted stays as it is, for the next one.
func (a *Agent) Run(ctx context.Context) error {
	if err := os.MkdirAll(a.Config.Directory, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(a.Config.Directory, "agent.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := a.restore(); err != nil {
		return err
	}
	defer a.server.Close()
	defer a.mps.Close()
	short, cancel := context.WithTimeout(ctx, recallLimit)
	opened := a.openInstances(ctx)
	a.recall(short)
	select {
	case <-opened: // else the GPUs are not offered until they are
	case <-short.Done():
	}
	cancel()
	if err := a.firstLook(ctx); err != nil {
		return err
	}
	var loops sync.WaitGroup
	defer loops.Wait()
	serving, stop := a.beyond(ctx)
	defer stop()
	for _, loop := range []func(context.Context){a.watchLoop, a.sweepLoop, a.healthLoop, a.farewellLoop, a.memoryLoop, a.tellFeatures} {
		loops.Go(func() { loop(serving) })
	}
	loops.Go(func() { a.publishLoop(serving, ctx) })
	loops.Go(func() {
		a.adopt(serving)
		a.guardLoop(serving)
	})
	plugin := a.plugin()
	if err := plugin.Sweep(); err != nil {
		a.Log.Warn("sockets of an earlier agent", "err", err)
	}
	plugin.Run(serving)
	return nil
}

func (a *Agent) plugin() *deviceplugin.Plugin {
	return &deviceplugin.Plugin{
		Directory: a.Config.Kubernetes.DevicePlugins, Resource: string(kube.ResourceVGPU), Node: a, Log: a.Log,
		Registered: func(yes bool) {
			a.metrics.registered.Store(yes)
			signal(a.wake)
			signal(a.report)
		},
	}
}

// lock waits until no other agent serves this node: two would grant the same space.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			file.Close()
			return nil, fmt.Errorf("another agent serves this node: %w", err)
		}
	}
}
