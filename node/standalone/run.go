package standalone

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// runStore holds the runs of a node. Its lock is never held during I/O.
type runStore struct {
	mu     sync.Mutex // guards the following, and the fields of runs that change
	runs   []*run     // in the order of admission
	closed bool
}

func (s *runStore) add(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, r)
}

func (s *runStore) remove(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = slices.DeleteFunc(s.runs, func(other *run) bool { return other == r })
}

// isRunning reports whether the node is open and the share of a run is not being released.
func (s *runStore) isRunning(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !r.ended && slices.Contains(s.runs, r)
}

// update calls a function that changes fields of a run, under the lock of the store. The function must not do I/O.
func (s *runStore) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// snapshot returns copies of all runs, in the order of admission.
func (s *runStore) snapshot() (copies []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		copies = append(copies, new(*r))
	}
	return copies
}

// unserved returns the runs that the token server does not serve.
func (s *runStore) unserved() (list []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.container == nil {
			list = append(list, r)
		}
	}
	return list
}

func (s *runStore) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// close marks the node as closed and closes the handles of the runs' processes, which live on.
func (s *runStore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, r := range s.runs {
		r.process.Close()
	}
}

// find returns the run with an ID, or the only run with that name. Several runs with the name are an error.
func (s *runStore) find(name string) (found *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		switch {
		case r.ID == name:
			return r, nil
		case r.Name == name && found != nil:
			return nil, &control.Refusal{Kind: control.NotFound, Reason: fmt.Sprintf("%.63q is the name of more than one run, such as %s and %s; give the ID",
				name, found.ID, r.ID)}
		case r.Name == name:
			found = r
		}
	}
	if found == nil {
		return nil, &control.Refusal{Kind: control.NotFound, Reason: fmt.Sprintf("no run has the name or ID %.63q", name)}
	}
	return found, nil
}

// run is a program that was started by gshare run and has a share. The share is held until its process has ended and its children have
// disconnected from the token server.
type run struct {
	record    // its SMLimit, Quota, MemoryLimit and Enforcement change
	process   process.Process
	dead      bool                   // the process has ended
	ended     bool                   // its share is being released
	pipe      string                 // MPS pipe directory in its environment; empty after a restart of the agent
	container *tokenserver.Container // nil while the token server does not serve it; its programs then keep to their limits by themselves
	unserved  string                 // why it does not
	lost      bool                   // its record is lost, and its share is what it could be at most
}

func (r *run) pod() *packing.Pod { return podOf(r.UID, r.request()) }

// picks returns where the devices of the run are on a node of the packer. Devices that the node lacks are left out.
func (r *run) picks(node *packing.Node) (picks []packing.Pick) {
	for _, uuid := range r.Devices {
		if i, ok := node.SliceIndex(packing.SliceID(uuid)); ok {
			picks = append(picks, packing.Pick{Slice: i, Class: r.Class})
		}
	}
	return picks
}

// holder returns the run as the holder of its shares.
func (r *run) holder() *core.Holder {
	h := &core.Holder{ID: r.ID}
	for _, uuid := range r.Devices {
		h.VGPUs = append(h.VGPUs, kube.PlacedVGPU{Slice: uuid, Class: r.Class, Priority: r.Priority, Share: share.Share(r.Share)})
	}
	return h
}

// contextMemory returns how much memory each process of the run may have on a device beyond the run's share. A run that has its devices
// alone is not a client of MPS, and may use all SMs.
func (r *run) contextMemory() share.Bytes {
	if r.Class == share.Exclusive {
		return mps.ContextMemory(share.Whole)
	}
	return mps.ContextMemory(r.Share.SMLimit)
}

// admit returns an error if a process that connects to the token server does not belong to the run, judging by its cgroup, or by its user if
// the run has no cgroup.
func (r *run) admit(p process.Process) error {
	if r.Cgroup == "" {
		if p.UID != r.UID && p.UID != 0 {
			return fmt.Errorf("the process is of user %d, the run of user %d", p.UID, r.UID)
		}
		return nil
	}
	m, err := cgroup.Of(p.PID)
	if err != nil {
		return err
	}
	if path, ok := m.Unified(); !ok || !cgroup.Below(path, r.Cgroup) {
		return fmt.Errorf("the cgroup %s of the process is not that of the run", path)
	}
	return nil
}

func (r *run) status() control.Run {
	out := control.Run{
		ID: r.ID, Name: r.Name, UID: r.UID, PID: r.PID, Started: r.Started, Priority: string(r.Priority),
		Enforcement: r.Enforcement, VGPUs: []control.VGPU{},
	}
	if r.container == nil {
		for _, uuid := range r.Devices {
			out.VGPUs = append(out.VGPUs, vgpuOf(tokenserver.VGPUStatus{Share: share.Share(r.Share), UUID: uuid, CurrentSMLimit: r.Share.SMLimit}))
		}
		out.Enforcement.Missing = append(slices.Clone(out.Enforcement.Missing), enforcement.Unserved+": "+r.unserved)
		return out
	}
	status := r.container.Status()
	out.Refused, out.SelfPaced, out.Refusals = status.Refused, status.SelfPaced, status.Refusals
	for _, v := range status.VGPUs {
		out.VGPUs = append(out.VGPUs, vgpuOf(v))
	}
	return out
}

func vgpuOf(v tokenserver.VGPUStatus) control.VGPU {
	out := control.VGPU{
		Device: v.UUID, SM: v.SMRequest, SMLimit: v.CurrentSMLimit, SMNow: v.CurrentSMs, Quota: v.QuotaRequest, QuotaLimit: v.QuotaLimit, Memory: v.Memory,
		UsedTime:   share.PerMille(v.Busy * time.Duration(share.Whole) / time.Second),
		UsedMemory: v.Used, Running: v.Running, Waiting: v.Waiting, Processes: []control.Process{},
	}
	for _, p := range v.Processes {
		out.Processes = append(out.Processes, control.Process{PID: p.PID, Launches: p.Launches, Memory: p.Memory})
	}
	return out
}
