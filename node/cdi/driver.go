package cdi

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Driver is the path of NVIDIA's CDI specification file, which lists the device nodes, libraries and hooks that a GPU needs in a container
// (nvidia-ctk cdi generate --device-name-strategy=uuid). An empty path adds nothing to containers.
type Driver string

// Edits returns the container edits of the devices with these UUIDs, and the edits in the file that apply to all devices.
func (d Driver) Edits(devices []string) (specs.ContainerEdits, error) {
	if d == "" {
		return specs.ContainerEdits{}, nil
	}
	text, err := os.ReadFile(string(d))
	if err != nil {
		return specs.ContainerEdits{}, fmt.Errorf("driver: %w", err)
	}
	var spec specs.Spec
	if err := yaml.Unmarshal(text, &spec); err != nil { // not strict: later versions of CDI add fields
		return specs.ContainerEdits{}, fmt.Errorf("driver: %s: %w", d, err)
	}
	edits := spec.ContainerEdits
	for _, uuid := range devices {
		device, ok := findDevice(spec.Devices, uuid)
		if !ok {
			return specs.ContainerEdits{}, fmt.Errorf("driver: %s has no device %s: generate the file again, with device names by UUID", d, uuid)
		}
		edits = Join(edits, device.ContainerEdits)
	}
	return edits, nil
}

func findDevice(devices []specs.Device, name string) (specs.Device, bool) {
	for _, d := range devices {
		if d.Name == name {
			return d, true
		}
	}
	return specs.Device{}, false
}

// Join returns the container edits of both arguments. A device node or mount that both contain appears once.
func Join(a, b specs.ContainerEdits) specs.ContainerEdits {
	out := specs.ContainerEdits{
		Env:   append(append([]string(nil), a.Env...), b.Env...),
		Hooks: append(append([]*specs.Hook(nil), a.Hooks...), b.Hooks...),
	}
	nodes, mounts := map[string]bool{}, map[string]bool{}
	for _, e := range []specs.ContainerEdits{a, b} {
		for _, n := range e.DeviceNodes {
			if !nodes[n.Path] {
				nodes[n.Path] = true
				out.DeviceNodes = append(out.DeviceNodes, n)
			}
		}
		for _, m := range e.Mounts {
			if !mounts[m.ContainerPath] {
				mounts[m.ContainerPath] = true
				out.Mounts = append(out.Mounts, m)
			}
		}
		out.AdditionalGIDs = append(out.AdditionalGIDs, e.AdditionalGIDs...)
	}
	return out
}
