package agent

import (
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// memoryAudit compares, for the processes of each container, the device memory that the driver counts with the memory that the hook counts.
type memoryAudit struct {
	slices *sliceRuntime
	grants *grantStore
	watch  *watchdog.MemoryWatch
	peaks  memoryPeaks

	mu   sync.Mutex // guards the following
	uses []watchdog.MemoryUse
}

// lastUses returns the memory of each container with a share, on each of its slices, as last observed.
func (a *memoryAudit) lastUses() []watchdog.MemoryUse {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uses
}

// ledgers returns what the hook counts in each container now, by grant ID.
func (a *memoryAudit) ledgers() map[string]tokenserver.Status {
	ledgers := map[string]tokenserver.Status{}
	for _, c := range a.slices.Tokens.Snapshot() {
		ledgers[c.ID] = c
	}
	return ledgers
}

// observe returns the containers whose processes have more memory, as the driver counts it, than the hook counts or than their share. before
// is the result of ledgers from before the driver listed the processes: it still includes memory that was freed since.
func (a *memoryAudit) observe(now time.Time, before map[string]tokenserver.Status, processes []watchdog.Process) []watchdog.Finding {
	after := a.ledgers()
	var uses []watchdog.MemoryUse
	for _, g := range a.grants.all() {
		status, served := after[g.ID()]
		for i, v := range g.VGPUs {
			if !served || i >= len(status.VGPUs) {
				continue // alone on its slices, or being closed
			}
			ledger := status.VGPUs[i]
			if earlier := before[g.ID()].VGPUs; i < len(earlier) {
				ledger.Used = max(ledger.Used, earlier[i].Used)
			}
			if ledger.LeasedSessions > 0 { // such processes report their memory again when they reconnect
				ledger.Used = max(ledger.Used, v.Share.Memory)
			}
			uses = append(uses, watchdog.MemoryUse{ // a parked container's Granted is what it keeps: others may have the rest
				Pod: string(g.UID), Container: g.Container, Slice: v.Slice, Granted: g.Level().Charge(v.Share, g.Residency.Memory).Memory, Ledger: ledger.Used,
				Context: mps.ContextMemory(v.Share.SMLimit), BestEffort: g.BestEffort, Weights: share.MemoryOf(g.Weights),
				Processes: memoryOf(processes, string(g.UID), g.Container, v.Slice, ledger),
			})
		}
	}
	a.mu.Lock()
	a.uses = uses
	a.mu.Unlock()
	return a.watch.Observe(now, uses)
}

// memoryOf returns the memory of a container's processes on a slice, by the driver and by the hook.
func memoryOf(processes []watchdog.Process, pod, container, slice string, ledger tokenserver.VGPUStatus) (all []watchdog.ProcessMemory) {
	counted := map[int]share.Bytes{}
	for _, p := range ledger.Processes {
		counted[p.PID] = p.Memory
	}
	for _, p := range processes {
		if p.Pod == pod && p.Container == container && p.Slice == slice {
			all = append(all, watchdog.ProcessMemory{PID: p.PID, StartTime: p.StartTime, Driver: p.Memory, Ledger: counted[p.PID]})
		}
	}
	return all
}
