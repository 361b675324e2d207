package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// handleFindings stores the watchdog's findings, reports them and kills processes, as each finding demands.
func (g *guard) handleFindings(ctx context.Context, found []watchdog.Finding) {
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
	changed := !slices.Equal(reportable(g.found), reportable(found))
	g.found = found
	g.mu.Unlock()
	if changed {
		g.publish()
	}
}

var errOtherProcess = errors.New("the PID belongs to another process by now")

// kill kills an observed process. It returns errOtherProcess if another process has the PID now.
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
		if err := g.slices.terminateClients(ctx, p.Slice, func(pid int) bool { return pid == p.PID }); err != nil {
			g.Log.Warn("failed to end the CUDA work of a process before it is killed", "pid", p.PID, "error", err)
		}
	}
	return handle.Kill()
}

// eventReasons maps kinds of watchdog findings to the reasons of their Kubernetes events.
var eventReasons = map[watchdog.Kind]string{
	watchdog.Unmanaged: eventUnmanaged, watchdog.WrongDevice: eventWrongDevice, watchdog.Unhooked: eventUnhooked,
	watchdog.Beside: eventBeside, watchdog.Uncounted: eventUncounted, watchdog.Overdrawn: eventOverdrawn,
}

// reportFinding logs a violation and writes an event on the pod of its process. A violation by a process outside of pods appears only in the
// log, in metrics, and in the enforcement status of the pods on its slice.
func (g *guard) reportFinding(f watchdog.Finding) {
	text := violationText(f, process.Program(f.PID))
	pod, _ := findContainer(g.pods, cgroup.Container{PodUID: f.Pod})
	g.Log.Warn("a process uses a slice in violation of its share", "kind", string(f.Kind), "pod", f.Pod, "text", text)
	if pod != nil {
		g.Cluster.Warn(pod, eventReasons[f.Kind], text)
	}
}

// violationText describes a violation and how to correct it. program is the name of the process's executable; it is empty if the name is not
// known.
func violationText(f watchdog.Finding, program string) string {
	who := fmt.Sprintf("process %d (%.64s) of container %s", f.PID, cmp.Or(program, "?"), cmp.Or(f.Container, "?"))
	text := ""
	switch f.Kind {
	case watchdog.Unmanaged:
		text = fmt.Sprintf("%s uses slice %s without a share of it: request gshare/sm, or remove the device from the devices of the "+
			"agent's configuration", who, f.Slice)
	case watchdog.WrongDevice:
		text = fmt.Sprintf("%s uses slice %s, which is not of its share: it must not create device nodes of its own, nor mount them", who, f.Slice)
	case watchdog.Unhooked:
		text = fmt.Sprintf("%s uses slice %s%s without the hook, so its time is not limited: it is %s; its program must use CUDA, be dynamically linked "+
			"with glibc and must not change /etc/ld.so.preload", who, f.Slice, through(f.Library), cmp.Or(f.Unhooked, "without a session"))
	case watchdog.Beside:
		text = fmt.Sprintf("%s can use slice %s%s without the hook, and is not limited there: use CUDA, or request the whole device", who, f.Slice,
			through(f.Library))
	case watchdog.Uncounted:
		text = fmt.Sprintf("%s: on slice %s %s", who, f.Slice, enforcement.MemoryCounts(f.Counts))
	case watchdog.Overdrawn:
		text = fmt.Sprintf("%s: on slice %s %s: more than the share and %d MiB for the contexts of each process", who, f.Slice, enforcement.MemoryCounts(f.Counts),
			f.Counts.Context/share.MiB)
	default:
		text = fmt.Sprintf("process %d (%.64s) outside of pods uses slice %s", f.PID, cmp.Or(program, "?"), f.Slice)
	}
	if f.Kill {
		text += "; it is killed"
	}
	return text
}

// through returns the part of a sentence that names the library through which a process uses the GPU; empty if it is not known.
func through(library string) string {
	if library == "" {
		return ""
	}
	return " through " + library
}

// maxUsersNamed is how many users of a slice a message lists by name.
const maxUsersNamed = 3

// sliceUsers describes, by slice ID, who uses slices without a share: observed processes, and containers to which other device plugins have
// allocated the slice. A MIG placement that overlaps with a used one counts as used, too.
func (g *guard) sliceUsers() map[string]string {
	inv := g.devices.currentInventory()
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

// podName returns the text by which messages refer to a pod, including pods that are not listed. It also has a text for processes outside of
// pods.
func (g *guard) podName(uid string) string {
	if uid == "" {
		return "processes outside of pods"
	}
	if pod, _ := findContainer(g.pods, cgroup.Container{PodUID: uid}); pod != nil {
		return grant.PodUser(pod.Namespace, pod.Name)
	}
	return "a pod with UID " + uid
}

// joinUsers joins names to a list, sorted and without duplicates. Beyond maxUsersNamed names, the list ends with the number of the others.
func joinUsers(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if n := len(names) - maxUsersNamed; n > 0 {
		names, more = names[:maxUsersNamed], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}
