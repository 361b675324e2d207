package standalone

import (
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// memoryAudit compares, for the processes of each run, the device memory that the driver counts with the memory that the hook counts. It
// ends no run.
type memoryAudit struct {
	watch *watchdog.MemoryWatch

	mu    sync.Mutex        // guards the following
	notes map[string]string // differences by run ID, as the enforcement statuses of the runs show them
}

// noteOf returns the difference of a run's memory; empty if there is none.
func (a *memoryAudit) noteOf(run string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notes[run]
}

// observe compares the memory of all runs once with the processes that the driver has listed.
func (a *memoryAudit) observe(runs []*run, processes []gpu.Process) {
	var uses []watchdog.MemoryUse
	for _, r := range runs {
		if r.container == nil {
			continue
		}
		for _, v := range r.container.Status().VGPUs {
			uses = append(uses, watchdog.MemoryUse{
				Container: r.ID, Slice: v.UUID, Granted: v.Memory, Ledger: v.Used,
				Context: r.contextMemory(), Processes: memoryOf(r, v, processes),
			})
		}
	}
	notes := map[string]string{}
	for _, f := range a.watch.Observe(time.Now(), uses) {
		notes[f.Container] = enforcement.MemoryCounts(f.Counts)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notes = notes
}

// memoryOf returns the memory of a run's processes on a vGPU: of those with a session, and of all others in the cgroup of the run.
func memoryOf(r *run, v tokenserver.VGPUStatus, processes []gpu.Process) (all []watchdog.ProcessMemory) {
	for _, p := range processes {
		if p.Slice != v.UUID {
			continue
		}
		found := watchdog.ProcessMemory{PID: p.PID, Driver: p.Memory}
		session := slices.IndexFunc(v.Processes, func(s tokenserver.ProcessStatus) bool { return s.PID == p.PID })
		if session >= 0 {
			found.Ledger = v.Processes[session].Memory
		} else if !inCgroupOf(r, p.PID) {
			continue
		}
		found.StartTime, _ = process.StartTime(p.PID) // 0 of a process that has ended
		all = append(all, found)
	}
	return all
}

// inCgroupOf reports whether a process is in the cgroup of a run. It is false for a run without a cgroup.
func inCgroupOf(r *run, pid int) bool {
	return r.Cgroup != "" && r.admit(process.Process{PID: pid}) == nil
}
