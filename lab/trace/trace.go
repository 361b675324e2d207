// Package trace reads cluster traces in the CSV form of the openb production trace, and converts their nodes and pods to Kubernetes objects
// that request gshare resources.
package trace

// Node is one machine of a cluster trace.
type Node struct {
	Name      string
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int
	Model     string // of its GPUs
}

// Pod is one pod of a cluster trace, with the CPU, memory and GPUs that it requests.
type Pod struct {
	Name      string
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int      // whole devices when more than one
	MilliGPU  int64    // of each device; 1000 is all of it
	Models    []string // acceptable device models; empty accepts every model
	Timed     int      // n > 0: requests the n-th smallest SM share of the grid that suffices, for a part of the time
}

// TotalMilli returns the GPUs that the pod requests, in thousandths of a device.
func (p Pod) TotalMilli() int64 { return int64(p.GPUs) * p.MilliGPU }

// gridSM lists the SM shares, in percent, that FaST-GShare profiles (FG-20).
var gridSM = []int64{6, 12, 24, 50, 60, 80, 100}

// share returns the percentages of SMs and of time that the pod requests of each device. The trace has fractions of a GPU only; a timed pod
// gets an SM share of FaST-GShare's grid, and the quota that makes the same GPU time.
func (p Pod) share() (sm, quota int64) {
	if p.Timed == 0 || p.GPUs > 1 {
		return (p.MilliGPU + 9) / 10, 100
	}
	nth := 0
	for _, sm = range gridSM {
		if 10*sm >= p.MilliGPU {
			nth++
		}
		if nth == p.Timed {
			break
		}
	}
	return sm, min(100, (10*p.MilliGPU+sm-1)/sm)
}

// Device holds the memory and the number of SMs of a GPU model.
type Device struct {
	MemoryMiB int64
	SMs       int
}

// devices holds the memory and SMs of the GPU models, by their names in the trace. G2 and G3 hide the product; their memory is that of the
// classes that the trace's authors describe, and the SM counts are those of A10 and A100.
var devices = map[string]Device{
	"T4":      {16 << 10, 40},
	"P100":    {16 << 10, 56},
	"V100M16": {16 << 10, 80},
	"V100M32": {32 << 10, 80},
	"A10":     {24 << 10, 72},
	"G2":      {24 << 10, 72},
	"G3":      {80 << 10, 108},
}

// DeviceOf returns the memory and SMs of a GPU model, and whether the model is known.
func DeviceOf(model string) (Device, bool) {
	d, ok := devices[model]
	return d, ok
}
