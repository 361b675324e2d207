package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// handle reports findings and kills processes, as the watchdog has decided, and stores the findings.
func (g *guard) handle(ctx context.Context, found []watchdog.Finding) {
	for _, f := range found {
		if f.Report {
			g.reportFinding(f)
		}
		if f.Kill {
			err := g.kill(ctx, f.Process)
			if err == nil {
				g.metrics.kills.WithLabelValues(string(f.Kind)).Inc()
			}
			g.Log.Warn("killing a process", "kind", string(f.Kind), "pid", f.PID, "pod", f.Pod, "slice", f.Slice, "error", err)
		}
	}
	g.mu.Lock()
	changed := !slices.Equal(reported(g.found), reported(found))
	g.found = found
	g.mu.Unlock()
	if changed {
		g.publish()
	}
}

var errOtherProcess = errors.New("the PID belongs to another process by now")

// kill kills a process, after it has verified that the PID was not used again.
func (g *guard) kill(ctx context.Context, p watchdog.Process) error {
	handle, err := process.Open(p.PID)
	if err != nil {
		return err
	}
	defer handle.Close()
	if startTime, c, ok := g.identityOf(p.PID); !ok || startTime != p.StartTime || c.PodUID == "" || c.PodUID != p.Pod || !handle.Alive() {
		return errOtherProcess
	}
	if g.slices.hasDaemon(p.Slice) {
		if err := g.slices.endClients(ctx, p.Slice, func(pid int) bool { return pid == p.PID }); err != nil {
			g.Log.Warn("failed to end the CUDA work of a process before it is killed", "pid", p.PID, "error", err)
		}
	}
	return handle.Kill()
}

// eventReasons are the reasons of events, by kind of finding.
var eventReasons = map[watchdog.Kind]string{
	watchdog.Stranger: "GPUStranger", watchdog.Trespasser: "GPUTrespasser", watchdog.Unhooked: "GPUUnhooked",
}

// reportFinding logs a finding, and writes an event on the pod of its process. A process outside of pods shows in the log, the metric,
// and the enforcement status of the pods on its device.
func (g *guard) reportFinding(f watchdog.Finding) {
	text := describe(f, process.Program(f.PID))
	pod, _ := find(g.pods, cgroup.Container{PodUID: f.Pod})
	g.Log.Warn("a process uses a slice in violation of its share", "kind", string(f.Kind), "pod", f.Pod, "text", text)
	if pod != nil {
		g.Cluster.Warn(pod, eventReasons[f.Kind], text)
	}
}

// describe returns what is wrong with a process, and what to do about it.
func describe(f watchdog.Finding, program string) string {
	who := fmt.Sprintf("process %d (%.64s) of container %s", f.PID, cmp.Or(program, "?"), cmp.Or(f.Container, "?"))
	text := ""
	switch f.Kind {
	case watchdog.Stranger:
		text = fmt.Sprintf("%s uses slice %s without a share of it: request gshare/sm, or remove the device from the devices of the "+
			"agent's configuration", who, f.Slice)
	case watchdog.Trespasser:
		text = fmt.Sprintf("%s uses slice %s, which is not of its share: it must not create device nodes of its own, nor mount them", who, f.Slice)
	case watchdog.Unhooked:
		text = fmt.Sprintf("%s uses slice %s without the hook, so its time is not limited: its program must be dynamically linked "+
			"and must not change /etc/ld.so.preload", who, f.Slice)
	default:
		text = fmt.Sprintf("process %d (%.64s) outside of pods uses slice %s", f.PID, cmp.Or(program, "?"), f.Slice)
	}
	if f.Kill {
		text += "; it is killed"
	}
	return text
}

// usersNamed is how many users of a slice are named.
const usersNamed = 3

// users returns by whom slices are used without a share, by slice ID: by processes that were seen there, or by containers that other
// device plugins have allocated them to. MIG placements that overlap with a used one are included.
func (g *guard) users() map[string]string {
	inv := g.devices.current()
	by := map[string][]string{}
	for slice, pods := range g.watch.Used() {
		for _, uid := range pods {
			by[slice] = append(by[slice], g.podName(uid))
		}
	}
	for _, l := range g.elsewhere {
		for _, slice := range inv.SlicesOf(l.Resource, l.Device) {
			by[slice] = append(by[slice], fmt.Sprintf("pod %s/%s (%s)", l.Namespace, l.Pod, l.Resource))
		}
	}
	used := map[string]string{}
	for slice, names := range by {
		used[slice] = joinUsers(names)
	}
	return inv.UsedAndOverlapping(used)
}

// podName returns the name of a pod for messages.
func (g *guard) podName(uid string) string {
	if uid == "" {
		return "processes outside of pods"
	}
	if pod, _ := find(g.pods, cgroup.Container{PodUID: uid}); pod != nil {
		return "pod " + pod.Namespace + "/" + pod.Name
	}
	return "a pod with UID " + uid
}

// joinUsers returns a list of the first names, sorted and without duplicates, and the number of others.
func joinUsers(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if n := len(names) - usersNamed; n > 0 {
		names, more = names[:usersNamed], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}
