package agent

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// guard looks who uses the slices, and by what right. All but a hung driver's answer belongs to its loop.
type guard struct {
	*Agent
	rule    *watchdog.Watch
	own     cgroup.Container // the agent's; zero where it runs in none
	pods    []*v1.Pod        // when a container was not known last
	lent    []kubelet.Lent   // when the kubelet answered last
	who     question[[]gpu.Process]
	failing bool // the driver does not answer, and that has been said
}

// How long the kubelet has for an answer, how long a slice stays used once nobody is seen there any more, in looks, and how
// often a pod is told the same.
const (
	recordLimit = time.Second
	lingerLooks = 5
	tellAgain   = 10 * time.Minute
)

func newGuard(a *Agent) *guard {
	k := a.Config.Kubernetes
	linger := lingerLooks * k.WatchPeriod.Duration
	g := &guard{Agent: a, rule: watchdog.New(watchdog.Config{
		Grace: k.HookGrace.Duration, Linger: linger, Retry: linger, Repeat: tellAgain, End: k.Strangers == config.EndStrangers,
	}), who: question[[]gpu.Process]{call: a.Source.Processes}}
	g.own = ownContainer()
	return g
}

// guardLoop looks again and again. It begins when what earlier agents granted is known: else their containers were strangers.
func (a *Agent) guardLoop(ctx context.Context) {
	for g := newGuard(a); ctx.Err() == nil; pause(ctx, a.Config.Kubernetes.WatchPeriod.Duration) {
		g.look(ctx)
	}
}

// look takes one look. Processes are seen before the grants are: a grant comes before its processes.
func (g *guard) look(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	if lent, err := g.Records.Lent(short); err == nil {
		g.lent = lent
	}
	if g.Config.Kubernetes.Strangers != config.IgnoreStrangers {
		if processes, ok := g.list(ctx); ok {
			if !g.failing { // else a device whose processes are not known would have none
				g.mps.ObserveProcesses(g.byUUID(processes))
			}
			known := g.identify(ctx, processes)
			g.act(ctx, g.rule.Look(time.Now(), known, g.granted()))
			g.limitAll(known)
		}
	}
	g.setUsed(g.users())
}

// list asks the driver for the processes.
func (g *guard) list(ctx context.Context) (processes []gpu.Process, ok bool) {
	processes, err := g.who.ask(ctx, g.Config.Kubernetes.WatchPeriod.Duration)
	switch {
	case ctx.Err() != nil:
		return nil, false
	case errors.Is(err, gpu.ErrNoGPU):
		err = nil // and no process
	}
	g.metrics.looked(err)
	if err != nil && !g.failing {
		g.Log.Error("list the processes on the devices", "err", err)
	}
	g.failing = err != nil
	return processes, err == nil || len(processes) > 0
}

// granted is what the rule has to know of the book.
func (a *Agent) granted() (grants []watchdog.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.book.All() {
		granted := watchdog.Grant{
			Pod: string(g.UID), Container: g.Container, Hooked: a.containers[g.ID()] != nil, BestEffort: g.BestEffort,
		}
		for _, v := range g.VGPUs {
			granted.Slices = append(granted.Slices, v.Slice)
		}
		grants = append(grants, granted)
	}
	return grants
}
