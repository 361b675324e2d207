// Package injection says what a container with a grant gets: the devices, the hook in front of the CUDA driver, the socket
// of the token server. It also says which pods could get around that.
package injection

import (
	"fmt"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Where things are in a container.
const (
	PreloadPath = "/etc/ld.so.preload"
	LibraryDir  = "/usr/lib/gshare"
	Library     = LibraryDir + "/libgshare.so"
	SocketDir   = "/run/gshare" // where the hook looks without being told
	MPSDir      = "/run/gshare-mps"
)

// Host is where they are on the node.
type Host struct {
	Hook    string // the library; empty in a node without one, which then shares nothing
	Preload string // a file that names Library
	Driver  cdi.Driver

	Capabilities cdi.Capabilities          // of MIG instances
	Device       func(slice string) Device // nil: a slice is a device by its UUID
}

// Device is what programs and the driver call a slice.
type Device struct {
	UUID string
	MIG  *cdi.Instance // nil: a whole GPU
}

func (h Host) device(slice string) Device {
	if h.Device == nil {
		return Device{UUID: slice}
	}
	return h.Device(slice)
}

// check refuses an instance without the driver's numbers: it would pass for a whole GPU, and whose nodes are under that name in the
// vendor's file is not known.
func (d Device) check(slice string) error {
	if d.UUID == "" || d.MIG == nil && strings.HasPrefix(d.UUID, "MIG-") {
		return fmt.Errorf("slice %s: the driver does not list the MIG instance now", slice)
	}
	return nil
}

// driver makes the devices usable in a container.
func (h Host) driver(devices []Device) (edits specs.ContainerEdits, err error) {
	for _, d := range devices {
		var whole []string
		var nodes specs.ContainerEdits
		if d.MIG == nil {
			whole = []string{d.UUID}
		} else if h.Driver != "" {
			if nodes, err = h.Capabilities.Edits(*d.MIG); err != nil {
				return specs.ContainerEdits{}, err
			}
		}
		own, err := h.Driver.Edits(whole)
		if err != nil {
			return specs.ContainerEdits{}, err
		}
		edits = cdi.Join(cdi.Join(edits, own), nodes)
	}
	return edits, nil
}

// Edits lists what the container gets. dir is its directory on the host, pipe that of its MPS; empty where no daemon runs.
func (h Host) Edits(g *grant.Grant, dir, pipe string) (specs.ContainerEdits, error) {
	var uuids []string
	var devices []Device
	for _, v := range g.VGPUs {
		d := h.device(v.Slice)
		if err := d.check(v.Slice); err != nil {
			return specs.ContainerEdits{}, err
		}
		uuids, devices = append(uuids, d.UUID), append(devices, d)
	}
	edits, err := h.driver(devices)
	if err != nil {
		return specs.ContainerEdits{}, err
	}
	// The directory is gone when the grant is: a runtime that has not noticed yet cannot create a container with an old one.
	edits = cdi.Join(specs.ContainerEdits{
		Env: []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(uuids, ",")}, Mounts: []*specs.Mount{bind(dir, SocketDir)},
	}, edits)
	if g.Class() == share.Exclusive {
		return edits, nil // alone on its devices: nothing stands between it and the driver
	}
	edits = cdi.Join(edits, specs.ContainerEdits{Mounts: []*specs.Mount{bind(h.Hook, Library), bind(h.Preload, PreloadPath)}})
	return cdi.Join(edits, h.mps(g, pipe)), nil
}

// mps makes the processes of the container clients of the daemon of its device. Of its pipes they see those that are theirs.
func (h Host) mps(g *grant.Grant, pipe string) specs.ContainerEdits {
	v := g.VGPUs[0]
	inside := mps.Daemons{Dir: MPSDir}.PipeDir(h.device(v.Slice).UUID)
	edits := specs.ContainerEdits{Env: mps.ClientEnvironment(inside, v.Share)}
	if mps.HasLowPriority(v.Class, v.Priority) {
		edits.Env = append(edits.Env, mps.LowPriorityVariable)
	}
	if pipe != "" {
		edits.Mounts = []*specs.Mount{{
			HostPath: pipe, ContainerPath: inside, Options: []string{"rbind", "rw", "nosuid", "nodev"},
		}}
	}
	return edits
}

// bind mounts something of the host so that the container can read it only.
func bind(host, container string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{"rbind", "ro", "nosuid", "nodev"}}
}
