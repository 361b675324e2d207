package nvml

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// numaNodeOf returns the NUMA node of the GPU with a minor number, from the files that the driver and the kernel have below the root
// directory; nil if they do not tell.
func numaNodeOf(root fs.FS, minor int) *int {
	const gpus = "proc/driver/nvidia/gpus" // a directory for each, by its PCI address
	entries, err := fs.ReadDir(root, gpus)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		text, err := fs.ReadFile(root, path.Join(gpus, e.Name(), "information"))
		if err != nil || !hasMinor(string(text), minor) {
			continue
		}
		text, err = fs.ReadFile(root, path.Join("sys/bus/pci/devices", e.Name(), "numa_node"))
		if err != nil {
			return nil
		}
		if node, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && node >= 0 { // -1: the machine has one
			return &node
		}
		return nil
	}
	return nil
}

// hasMinor reports whether the driver's description of a GPU has this minor number. A line is such as "Device Minor: 	 0".
func hasMinor(information string, minor int) bool {
	for line := range strings.Lines(information) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == "Device Minor" {
			return strings.TrimSpace(value) == fmt.Sprint(minor)
		}
	}
	return false
}
