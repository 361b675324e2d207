// Package usage says what pods use of their GPUs: what was measured, or else what is assumed.
package usage

import (
	"fmt"
	"strconv"
	"strings"
)

// maxMiB bounds the memory of a GPU.
const maxMiB = 1 << 24

// Assumption is the share that a pod with one whole GPU is taken to need where nothing says what it uses.
type Assumption struct {
	SM, Quota     int64 // percent
	MemoryMiB     int64 // of the share; 0 if MemoryPercent says it
	MemoryPercent int64 // of the GPU
}

// DefaultAssumption is half of a GPU all of the time.
var DefaultAssumption = Assumption{SM: 50, Quota: 100, MemoryPercent: 50}

// String writes the assumption as ParseAssumption reads it.
func (a Assumption) String() string {
	memory := fmt.Sprintf("%d", a.MemoryMiB)
	if a.MemoryMiB == 0 {
		memory = fmt.Sprintf("%d%%", a.MemoryPercent)
	}
	return fmt.Sprintf("sm=%d,quota=%d,mem=%s", a.SM, a.Quota, memory)
}

// Memory is what the assumption means on a GPU of so many MiB.
func (a Assumption) Memory(gpuMiB int64) int64 {
	if a.MemoryMiB > 0 {
		return a.MemoryMiB
	}
	return gpuMiB * a.MemoryPercent / 100
}

// ParseAssumption reads text such as sm=50,quota=100,mem=50% (or mem=20480, in MiB). What is left out is the default.
func ParseAssumption(text string) (Assumption, error) {
	a := DefaultAssumption
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		if err := a.set(name, value); err != nil {
			return Assumption{}, err
		}
	}
	return a, nil
}

func (a *Assumption) set(name, value string) (err error) {
	switch name {
	case "sm":
		a.SM, err = within(name, value, 100)
	case "quota":
		a.Quota, err = within(name, value, 100)
	case "mem":
		a.MemoryMiB, a.MemoryPercent = 0, 0
		if percent, ok := strings.CutSuffix(value, "%"); ok {
			a.MemoryPercent, err = within(name, percent, 100)
		} else {
			a.MemoryMiB, err = within(name, value, maxMiB)
		}
	default:
		err = fmt.Errorf("%q is none of sm, quota, mem", name)
	}
	return err
}

// within reads a whole number from 1 to most.
func within(name, text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s: %.64q is not a whole number from 1 to %d", name, text, most)
	}
	return n, nil
}
