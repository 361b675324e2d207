// Package usage parses the measured or assumed use of GPUs by pods.
package usage

import (
	"fmt"
	"strconv"
	"strings"
)

// maxMiB is the largest accepted memory size of a GPU, in MiB.
const maxMiB = 1 << 24

// Assumption is the share that a pod is assumed to need if it has one whole GPU and its use was not measured.
type Assumption struct {
	SM, Quota     int64 // percent
	MemoryMiB     int64 // of the share; 0 if MemoryPercent is set
	MemoryPercent int64 // of the GPU
}

// DefaultAssumption is half of a GPU's SMs and of its memory, for all of the time.
var DefaultAssumption = Assumption{SM: 50, Quota: 100, MemoryPercent: 50}

// String returns the assumption in the syntax of ParseAssumption.
func (a Assumption) String() string {
	memory := fmt.Sprintf("%d", a.MemoryMiB)
	if a.MemoryMiB == 0 {
		memory = fmt.Sprintf("%d%%", a.MemoryPercent)
	}
	return fmt.Sprintf("sm=%d,quota=%d,mem=%s", a.SM, a.Quota, memory)
}

// Memory returns the assumed memory in MiB of a pod on a GPU with gpuMiB of memory.
func (a Assumption) Memory(gpuMiB int64) int64 {
	if a.MemoryMiB > 0 {
		return a.MemoryMiB
	}
	return gpuMiB * a.MemoryPercent / 100
}

// ParseAssumption parses text such as sm=50,quota=100,mem=50% (or mem=20480, in MiB). Missing fields have their defaults.
func ParseAssumption(text string) (Assumption, error) {
	a := DefaultAssumption
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		if err := a.setField(name, value); err != nil {
			return Assumption{}, err
		}
	}
	return a, nil
}

// setField parses a value and sets the field with this name, which is sm, quota or mem.
func (a *Assumption) setField(name, value string) (err error) {
	switch name {
	case "sm":
		a.SM, err = parseWithin(name, value, 100)
	case "quota":
		a.Quota, err = parseWithin(name, value, 100)
	case "mem":
		a.MemoryMiB, a.MemoryPercent = 0, 0
		if percent, ok := strings.CutSuffix(value, "%"); ok {
			a.MemoryPercent, err = parseWithin(name, percent, 100)
		} else {
			a.MemoryMiB, err = parseWithin(name, value, maxMiB)
		}
	default:
		err = fmt.Errorf("unknown field %q: must be sm, quota or mem", name)
	}
	return err
}

// parseWithin parses an integer; one that is not from 1 to most is an error that names the field.
func parseWithin(name, text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s: invalid value %.64q: must be an integer from 1 to %d", name, text, most)
	}
	return n, nil
}
