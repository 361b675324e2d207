// Package injection computes what is added to a container with a grant: the devices, the hook in front of the CUDA driver, the
// socket of the token server. It also refuses pods whose own fields could bypass that.
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

// Paths in a container.
const (
	PreloadPath = "/etc/ld.so.preload"
	LibraryDir  = "/usr/lib/gshare"
	Library     = LibraryDir + "/libgshare.so"
	SocketDir   = "/run/gshare" // the default of the hook
	MPSDir      = "/run/gshare-mps"
)

// Host holds where the injected files are on the node.
type Host struct {
	Hook    string // the library; empty in a node without one, which then shares nothing
	Preload string // a file that names Library
	Driver  cdi.Driver

	Capabilities cdi.Capabilities          // of MIG instances
	Device       func(slice string) Device // nil: a slice is a device by its UUID
}

// Device is a slice as programs and the driver identify it.
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

// check returns an error for a MIG instance that the driver does not list now. It would be taken for a whole GPU, and the vendor's file
// may have the device nodes of another one under that name.
func (d Device) check(slice string) error {
	if d.UUID == "" || d.MIG == nil && strings.HasPrefix(d.UUID, "MIG-") {
		return fmt.Errorf("slice %s: the driver does not list the MIG instance now", slice)
	}
	return nil
}

// driver returns the edits that make devices usable in a container.
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

// Edits returns what is added to a container with a grant. dir is the container's directory on the host, pipe that of its MPS daemon;
// empty if none runs.
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
	// The directory is deleted with the grant, so a runtime with an outdated file cannot create a container from it.
	edits = cdi.Join(specs.ContainerEdits{
		Env: []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(uuids, ",")}, Mounts: []*specs.Mount{bind(dir, SocketDir)},
	}, edits)
	if g.Class() == share.Exclusive {
		return edits, nil // alone on its devices: it needs no hook
	}
	edits = cdi.Join(edits, specs.ContainerEdits{Mounts: []*specs.Mount{bind(h.Hook, Library), bind(h.Preload, PreloadPath)}})
	return cdi.Join(edits, h.mps(g, pipe)), nil
}

// mps returns the edits that make the container's processes clients of the MPS daemon of its slice, in its own namespace if there is one.
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

// bind returns a read-only mount of a path of the host.
func bind(host, container string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{"rbind", "ro", "nosuid", "nodev"}}
}
