package standalone

import (
	"fmt"
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// run is one admitted share with what holds it: a living process, or connections to the token server.
type run struct {
	record
	process   process.Process
	dead      bool   // the process has ended
	pipe      string // MPS pipe directory in its environment; empty after a restart of the agent
	container *tokenserver.Container
}

func (r *run) pod() *packing.Pod { return podOf(r.UID, r.request()) }

// picks returns the run's devices on the node; fewer if some are missing.
func (r *run) picks(node *packing.Node) (picks []packing.Pick) {
	for _, uuid := range r.Devices {
		if i, ok := node.SliceIndex(packing.SliceID(uuid)); ok {
			picks = append(picks, packing.Pick{Slice: i, Class: r.Class})
		}
	}
	return picks
}

func (n *Node) dirOf(id string) string { return filepath.Join(n.runsDir(), id) }

// prepare adds the shares of a run to their slices at the token server, which does not listen yet.
func (n *Node) prepare(r *run) (err error) {
	spec := tokenserver.Spec{
		ID: r.ID, Dir: n.dirOf(r.ID), Admit: r.admit, Launcher: r.PID,
		Empty: func() { go n.endIfUnused(r) }, // it must not wait for the connection that ends
	}
	picks := r.picks(n.empty)
	if len(picks) != len(r.Devices) {
		return fmt.Errorf("prepare run %s: a device is missing", r.ID)
	}
	for i, pick := range picks {
		spec.VGPUs = append(spec.VGPUs, tokenserver.VGPU{
			Share: share.Share(r.Share), Slice: n.slices[pick.Slice], UUID: r.Devices[i], Index: i,
			Elastic: r.Class == share.Elastic, Priority: r.Priority,
		})
	}
	if r.container, err = n.server.Prepare(spec); err != nil || r.SMLimit == 0 {
		return err
	}
	return r.container.Resize(r.SMLimit)
}
