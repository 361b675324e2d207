// Package cdi writes the files of the Container Device Interface, through which a container runtime adds devices to a container. The kubelet
// passes the device name for a set of device IDs to the runtime before the owner of the device IDs is known; the file for that name is written
// just before the container is created.
package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
)

const (
	version = "0.6.0" // the first version with annotations; containerd has read it since 1.7.2
	prefix  = "gshare.dev-grant-"

	// kind is the kind of the CDI device that stands for the share of a container. The runtime adds to the container what the file says.
	//
	//	kind: CDI
	//	object: kind of a CDI file
	//	written by: node agent
	//	values: gshare.dev/grant=KEY names a device
	kind = "gshare.dev/grant"

	// annotationOwner is an annotation of such a device: to which container's grant it belongs, so that nothing removes the file of another.
	//
	//	kind: CDI
	//	object: annotation of a CDI device
	//	written by: node agent
	//	values: a hash
	annotationOwner = "gshare.dev/owner"
)

// Name returns the fully qualified CDI device name for a device ID key (device ID.Key), as the kubelet passes it to the container runtime.
func Name(key string) string { return kind + "=" + key }

// Directory is the path of the directory from which the container runtime reads CDI files. Other programs write there too.
type Directory string

// Write writes the CDI file for a device ID key, with its owner and the edits of the owner's container. The temporary file is in the same
// directory: runtimes watch that directory for renames and read only files whose names end in .json or .yaml.
func (d Directory) Write(key, owner string, edits specs.ContainerEdits) error {
	text, err := json.Marshal(specs.Spec{
		Version: version, Kind: kind,
		Devices: []specs.Device{{Name: key, Annotations: map[string]string{annotationOwner: owner}, ContainerEdits: edits}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(d.file(key), text, 0o600)
}

// Remove deletes the CDI file of a device ID key, so that no container can be created with it. A missing file is no error.
func (d Directory) Remove(key string) error {
	if err := os.Remove(d.file(key)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// Keys returns the device ID keys of gshare's CDI files in the directory.
func (d Directory) Keys() (keys []string, err error) {
	files, err := filepath.Glob(d.file("*"))
	for _, file := range files {
		keys = append(keys, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), prefix), ".json"))
	}
	return keys, err
}

func (d Directory) file(key string) string { return filepath.Join(string(d), prefix+key+".json") }

// OwnerOf returns the owner that the CDI file of a device ID key names, or an empty string if there is no file.
func (d Directory) OwnerOf(key string) (string, error) {
	text, err := os.ReadFile(d.file(key))
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return "", fmt.Errorf("decode %s: %w", d.file(key), err)
	}
	if spec.Version != version || spec.Kind != kind || len(spec.Devices) != 1 {
		return "", fmt.Errorf("decode %s: version %.16q, kind %.64q with %d devices is not %s, %s with one device",
			d.file(key), spec.Version, spec.Kind, len(spec.Devices), version, kind)
	}
	return spec.Devices[0].Annotations[annotationOwner], nil
}

// Clear deletes all of gshare's CDI files, including temporary ones.
func (d Directory) Clear() error {
	files, err := filepath.Glob(filepath.Join(string(d), prefix+"*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// Instance identifies a MIG instance by the driver's numbers.
type Instance struct {
	Minor   int // of the GPU's device node
	GPU     int // GPU instance
	Compute int // compute instance in the GPU instance
}

// Capabilities is the path of the file in which the NVIDIA driver lists the device nodes of MIG instances.
type Capabilities string

// DriverCapabilities is the path at which the NVIDIA driver lists the device nodes of MIG instances.
const DriverCapabilities Capabilities = "/proc/driver/nvidia-caps/mig-minors"

// Edits returns the container edits with the device nodes of a MIG instance: those of its GPU, its GPU instance and its compute instance. It
// reads the driver's file on each call, since the driver reuses numbers for other instances.
func (c Capabilities) Edits(i Instance) (edits specs.ContainerEdits, err error) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return edits, fmt.Errorf("MIG capabilities: %w", err)
	}
	edits.DeviceNodes = []*specs.DeviceNode{{Path: fmt.Sprintf("/dev/nvidia%d", i.Minor)}}
	for _, name := range []string{
		fmt.Sprintf("gpu%d/gi%d/access", i.Minor, i.GPU), fmt.Sprintf("gpu%d/gi%d/ci%d/access", i.Minor, i.GPU, i.Compute),
	} {
		number, ok := capabilityNumber(string(text), name)
		if !ok {
			return edits, fmt.Errorf("MIG capabilities: the driver has none for %s", name)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: "/dev/nvidia-caps/nvidia-cap" + number})
	}
	return edits, nil
}

// capabilityNumber returns the device number of a driver capability. Each line of the text is a name and a number.
func capabilityNumber(text, name string) (number string, ok bool) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			return fields[1], true
		}
	}
	return "", false
}
