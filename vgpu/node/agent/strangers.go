package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// act does what is due about what was found.
func (g *guard) act(ctx context.Context, found []watchdog.Finding) {
	for _, f := range found {
		if f.Tell {
			g.tell(f)
		}
		if f.End {
			err := g.end(ctx, f.Process)
			if err == nil {
				g.metrics.ends.WithLabelValues(string(f.Kind)).Inc()
			}
			g.Log.Warn("end a process", "kind", string(f.Kind), "pid", f.PID, "pod", f.Pod, "slice", f.Slice, "err", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := !slices.Equal(reports(g.found), reports(found))
	g.found = found
	if changed {
		signal(g.report)
	}
}

var errOther = errors.New("it is another process by now")

// end ends a process, after another look at who it is: a PID may be used again.
func (g *guard) end(ctx context.Context, p watchdog.Process) error {
	held, err := process.Open(p.PID)
	if err != nil {
		return err
	}
	defer held.Close()
	if born, c, ok := g.whois(p.PID); !ok || born != p.Born || c.PodUID == "" || c.PodUID != p.Pod || !held.Alive() {
		return errOther
	}
	if err := g.endClient(ctx, p.Slice, p.PID); err != nil {
		g.Log.Warn("end the work of a client of MPS before its process", "pid", p.PID, "err", err)
	}
	return held.Kill()
}

// reasons of events.
var reasons = map[watchdog.Kind]string{
	watchdog.Stranger: "GPUStranger", watchdog.Trespasser: "GPUTrespasser", watchdog.Unhooked: "GPUUnhooked",
}

// tell writes an event on the pod of a process. A process outside of pods has the log, the metric, and the reports of the pods
// on its device.
func (g *guard) tell(f watchdog.Finding) {
	text := describe(f, process.Program(f.PID))
	pod, _ := find(g.pods, cgroup.Container{PodUID: f.Pod})
	g.Log.Warn("a process that should not be there", "kind", string(f.Kind), "pod", f.Pod, "text", text)
	if pod != nil {
		g.Cluster.Warn(pod, reasons[f.Kind], text)
	}
}

// describe says what is wrong, and what to do.
func describe(f watchdog.Finding, program string) string {
	who := fmt.Sprintf("process %d (%.64s) of container %s", f.PID, cmp.Or(program, "?"), cmp.Or(f.Container, "?"))
	text := ""
	switch f.Kind {
	case watchdog.Stranger:
		text = fmt.Sprintf("%s uses slice %s without a share of it: ask for gshare/sm, or take the device out of the devices of the "+
			"agent's configuration", who, f.Slice)
	case watchdog.Trespasser:
		text = fmt.Sprintf("%s uses slice %s, which is not of its share: it must not make devices of its own, nor mount them", who, f.Slice)
	case watchdog.Unhooked:
		text = fmt.Sprintf("%s uses slice %s without the hook, so that its time is not limited: its program must be linked dynamically "+
			"and leave /etc/ld.so.preload alone", who, f.Slice)
	default:
		text = fmt.Sprintf("process %d (%.64s) outside of pods uses slice %s", f.PID, cmp.Or(program, "?"), f.Slice)
	}
	if f.End {
		text += "; it is ended"
	}
	return text
}
