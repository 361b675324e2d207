package standalone

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/enforcement"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// openMPS returns the MPS pipe directory of a run, or why MPS does not admit its processes now. Exclusive runs need no MPS.
func (n *Node) openMPS(r *run) (pipe string, _ error) {
	if r.Class == share.Exclusive {
		return "", nil
	}
	return n.mps.Open(r.member())
}

// member returns the run as a client of the MPS daemon.
func (r *run) member() mps.Member {
	return mps.NewMember(r.Devices[0], r.ID, share.Share(r.Share), mps.HasLowPriority(r.Class, r.Priority))
}

// syncMPS starts the daemons of shared devices and stops all others, so that the next runs start with fresh ones. The caller holds
// the lock.
func (n *Node) syncMPS() {
	var members []mps.Member
	for _, r := range n.runs {
		if r.Class != share.Exclusive {
			members = append(members, r.member())
		}
	}
	n.mps.SetMembers(members)
}

// retryWaiters admits waiting requests after the state of an MPS daemon has changed.
func (n *Node) retryWaiters() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.admitWaiters()
}

// smEnforcement returns how the SMs of a run are limited, with the number that MPS rounds its percentage to.
func (n *Node) smEnforcement(r *run) string {
	i, _ := n.empty.SliceIndex(packing.SliceID(r.Devices[0]))
	s := n.empty.Slices[i]
	return enforcement.SMs(n.mpsName(r), r.Share.SMLimit, s.SMs, s.Profile)
}

// mpsName returns the name of the MPS feature that limits a run's SMs, for its enforcement status.
func (n *Node) mpsName(r *run) string {
	return enforcement.MPS(n.mps.HasNamespace(r.Devices[0], r.ID))
}

// mpsLoophole returns how a program can escape the limits of MPS.
func (n *Node) mpsLoophole(r *run) string {
	if n.mps.HasNamespace(r.Devices[0], r.ID) {
		return "a program that names other pipes in its environment has other limits of MPS"
	}
	return "a program that changes its environment loosens the limits of MPS"
}

// watchProcesses looks for programs that run without MPS, until the node is closed. Close does not wait for it, since a call may hang
// in the driver.
func (n *Node) watchProcesses() {
	if n.Source == nil {
		return
	}
	go func() {
		for ; !n.isClosed(); time.Sleep(n.timing.period) {
			if processes, err := n.Source.Processes(); err == nil {
				n.mps.ObserveProcesses(processes)
			}
		}
	}()
}

func (n *Node) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// withBare adds to the enforcement status of a run what its processes do.
func (n *Node) withBare(r control.Run) control.Run {
	for _, v := range r.VGPUs {
		bare := n.mps.NonMPSProcesses(v.Device)
		if slices.ContainsFunc(v.Processes, func(p control.Process) bool { return slices.Contains(bare, p.PID) }) {
			r.Enforcement.Missing = append(slices.Clone(r.Enforcement.Missing), "a process runs without MPS, and its SMs are not limited")
		}
	}
	return r
}
