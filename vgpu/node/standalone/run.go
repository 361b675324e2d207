package standalone

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const recordName = "run.json"

// record is what a later agent needs to take a run over. It lies in the run's directory.
type record struct {
	ID          string
	Name        string
	UID         uint32
	PID         int    // of the process that asked, which becomes the program
	Born        uint64 // its start, as /proc has it: tells it from a later one with its PID
	Started     time.Time
	Request     share.Request
	Devices     []string // UUID of each vGPU's
	Class       share.Isolation
	SMLimit     share.PerMille // of an elastic run, where it was moved; 0: that of the request
	Group       string         // cgroup; empty if it has none
	Limited     share.Bytes    // device memory by the driver's word, with what the driver takes for itself; 0: it has not confirmed a limit
	Enforcement control.EnforcementStatus
}

// run is one admitted share with whatever holds it: a living process, or connections to the token server.
type run struct {
	record
	process   process.Process
	dead      bool   // the process has ended
	pipe      string // by which it was told to come to MPS; empty after a restart of the agent
	container *tokenserver.Container
}

func (r *run) pod() *packing.Pod { return podOf(r.UID, r.Request) }

// picks finds the run's devices on the node.
func (r *run) picks(node *packing.Node) (picks []packing.Pick) {
	for _, uuid := range r.Devices {
		if i, ok := node.SliceIndex(packing.SliceID(uuid)); ok {
			picks = append(picks, packing.Pick{Slice: i, Class: r.Class})
		}
	}
	return picks
}

func (n *Node) dirOf(id string) string { return filepath.Join(n.runsDir(), id) }

func (n *Node) save(r *run) error {
	text, err := json.Marshal(r.record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.dirOf(r.ID), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(n.dirOf(r.ID), recordName), text, 0o644)
}

// prepare lets the shares of a run join their slices.
func (n *Node) prepare(r *run) (err error) {
	spec := tokenserver.Spec{
		ID: r.ID, Dir: n.dirOf(r.ID), Admit: r.admit, Launcher: r.PID,
		Empty: func() { go n.settle(r) }, // it must not wait for the connection that ends
	}
	picks := r.picks(n.empty)
	if len(picks) != len(r.Devices) {
		return fmt.Errorf("run %s: a device of its is gone", r.ID)
	}
	for i, pick := range picks {
		spec.VGPUs = append(spec.VGPUs, tokenserver.VGPU{
			Share: r.Request.Containers[0].Share, Slice: n.slices[pick.Slice], UUID: r.Devices[i], Index: i,
			Elastic: r.Class == share.Elastic, Priority: r.Request.Priority,
		})
	}
	if r.container, err = n.server.Prepare(spec); err != nil || r.SMLimit == 0 {
		return err
	}
	return r.container.Resize(r.SMLimit)
}
