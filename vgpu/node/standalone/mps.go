package standalone

import (
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// openLimit is how long a program that does not wait for room waits for MPS to serve its device.
const openLimit = 10 * time.Second

// open says why no process of a run may come to its devices now, or by which pipes it comes to MPS. Whole devices are used without MPS.
func (n *Node) open(r *run) (pipe string, _ error) {
	if r.Class == share.Exclusive {
		return "", nil
	}
	return n.mps.Open(r.member())
}

// member is what a run is to MPS.
func (r *run) member() mps.Member {
	return mps.NewMember(r.Devices[0], r.ID, share.Share(r.Share), mps.HasLowPriority(r.Class, r.Priority))
}

// holdMPS keeps the daemons of the devices that are shared, and ends those of others, so that the next runs start without what
// the last ones left. The caller holds the lock.
func (n *Node) holdMPS() {
	var members []mps.Member
	for _, r := range n.runs {
		if r.Class != share.Exclusive {
			members = append(members, r.member())
		}
	}
	n.mps.SetMembers(members)
}

// reconsider lets those in who waited for a daemon.
func (n *Node) reconsider() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.admitWaiters()
}

// capOf says how many SMs MPS gives the run: the hardware rounds.
func (n *Node) capOf(r *run) string {
	i, _ := n.empty.SliceIndex(packing.SliceID(r.Devices[0]))
	s := n.empty.Slices[i]
	return fmt.Sprintf("%s, %d of %d SMs", n.mpsOf(r), supervisor.Cap(r.Share.SMLimit, s.SMs), s.SMs) + inside(s.Profile)
}

// mpsOf names MPS by how it holds a run.
func (n *Node) mpsOf(r *run) string {
	if n.mps.HasNamespace(r.Devices[0], r.ID) {
		return "MPS namespace"
	}
	return "MPS"
}

// loose says what a program can do about the limits of MPS: it sees the pipes of all.
func (n *Node) loose(r *run) string {
	if n.mps.HasNamespace(r.Devices[0], r.ID) {
		return "a program that names other pipes in its environment has other limits of MPS"
	}
	return "a program that changes its environment loosens the limits of MPS"
}

// inside adds to what enforces a share that a MIG instance stands around it.
func inside(profile string) string {
	if profile == "" {
		return ""
	}
	return ", inside of MIG " + profile
}

// processPeriod is how often the processes on the devices are looked at.
const processPeriod = 2 * time.Second

// watchProcesses finds programs that run without MPS. Nobody waits for its end: a call into a driver that hangs cannot be ended.
func (n *Node) watchProcesses() {
	if n.Source == nil {
		return
	}
	go func() {
		for ; !n.isClosed(); time.Sleep(processPeriod) {
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
