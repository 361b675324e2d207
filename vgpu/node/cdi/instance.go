package cdi

import (
	"fmt"
	"os"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Instance is a MIG instance by the driver's numbers.
type Instance struct {
	Minor   int // of the GPU's device node
	GPU     int // instance of the GPU
	Compute int // instance of that
}

// Capabilities is the file in which the driver tells which node opens which instance.
type Capabilities string

// DriverCapabilities is where it is.
const DriverCapabilities Capabilities = "/proc/driver/nvidia-caps/mig-minors"

// Edits gives the device nodes of exactly one instance: that of its GPU, and the capabilities for the GPU instance and the
// compute instance. They are read anew each time: a file that a tool wrote before the instance was made would not have them,
// or have another's, as the driver gives numbers and UUIDs again.
func (c Capabilities) Edits(i Instance) (edits specs.ContainerEdits, err error) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return edits, fmt.Errorf("MIG capabilities: %w", err)
	}
	edits.DeviceNodes = []*specs.DeviceNode{{Path: fmt.Sprintf("/dev/nvidia%d", i.Minor)}}
	for _, name := range []string{
		fmt.Sprintf("gpu%d/gi%d/access", i.Minor, i.GPU), fmt.Sprintf("gpu%d/gi%d/ci%d/access", i.Minor, i.GPU, i.Compute),
	} {
		number, ok := lookUp(string(text), name)
		if !ok {
			return edits, fmt.Errorf("MIG capabilities: the driver has none for %s", name)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: "/dev/nvidia-caps/nvidia-cap" + number})
	}
	return edits, nil
}

// lookUp finds the number of a capability, one a line behind its name.
func lookUp(text, name string) (number string, ok bool) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			return fields[1], true
		}
	}
	return "", false
}
