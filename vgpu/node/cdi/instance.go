package cdi

import (
	"fmt"
	"os"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

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

// Edits returns the container edits with the device nodes of a MIG instance: that of its GPU, of its GPU instance and of its compute
// instance. It reads the driver's file on each call, since the driver uses numbers again for other instances.
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
