package kube

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds of a slice: above every known GPU, and low enough to reveal a wrong unit.
const (
	MaxSMs      = 4096 // streaming multiprocessors
	maxShares   = 60   // MPS clients of one device
	maxIDLength = 44   // NVIDIA's UUIDs have 40
	maxReason   = 16
	maxLocality = 1023 // Linux has up to 1024 NUMA nodes
)

const maxGammaPercent = 1000

// Validate returns an error if the rules are invalid, or if slices are invalid, duplicate or overlapping, so that nothing can be
// scheduled on them safely. Every error wraps ErrMalformed.
func (inv Inventory) Validate() error {
	if len(inv.Slices) > MaxSlices {
		return malformedError("inventory", "%d slices are more than %d", len(inv.Slices), MaxSlices)
	}
	if inv.Rules != nil {
		if err := inv.Rules.check(); err != nil {
			return malformedError("inventory", "rules: %v", err)
		}
	}
	ids := make(map[string]bool, len(inv.Slices))
	for i := range inv.Slices {
		s := &inv.Slices[i]
		if err := s.check(); err != nil {
			return malformedError("inventory", "slice %.64q: %v", s.ID, err)
		}
		if ids[s.ID] {
			return malformedError("inventory", "slice %q is there twice", s.ID)
		}
		ids[s.ID] = true
	}
	return inv.checkDevices(ids)
}

// checkDevices returns an error if a GPU is listed both as a whole and by its MIG instances: shares on one would use the resources of the other.
func (inv Inventory) checkDevices(ids map[string]bool) error {
	for i := range inv.Slices {
		if s := &inv.Slices[i]; s.Profile != "" && ids[s.Device] {
			return malformedError("inventory", "device %q is there both whole and in MIG instances", s.Device)
		}
	}
	return nil
}

func (r *Rules) check() error {
	switch {
	case r.GammaPercent < 100 || r.GammaPercent > maxGammaPercent:
		return fmt.Errorf("gammaPercent %d is outside 100 to %d", r.GammaPercent, maxGammaPercent)
	case r.Window.Duration < 10*time.Millisecond || time.Second%r.Window.Duration != 0:
		return fmt.Errorf("a window of %v does not divide a second into parts of 10ms or more", r.Window.Duration)
	}
	return nil
}

func (s *Slice) check() error {
	switch {
	case !isPlainName(s.ID, maxIDLength):
		return errors.New("the id is not a UUID")
	case !isPlainName(s.Device, maxIDLength):
		return fmt.Errorf("device %.64q is not a UUID", s.Device)
	case (s.Profile == "") != (s.ID == s.Device):
		return fmt.Errorf("profile %.64q does not go with device %q: a whole GPU is its own device, a MIG instance is not", s.Profile, s.Device)
	case s.Profile == "" && s.Room != 0:
		return errors.New("only a place for a MIG instance has a room")
	case s.Profile != "" && !share.ValidProfile(s.Profile):
		return fmt.Errorf("%.64q is not a MIG profile", s.Profile)
	case !share.ValidModel(s.Model):
		return fmt.Errorf("%.64q is not a device model", s.Model)
	case s.Profile != "" && (s.NUMA != nil || s.NVLink != 0):
		return errors.New("only a whole GPU has a NUMA node and NVLink")
	case s.NUMA != nil && (*s.NUMA < 0 || *s.NUMA > maxLocality):
		return fmt.Errorf("NUMA node %d is outside 0 to %d", *s.NUMA, maxLocality)
	case s.NVLink < 0 || s.NVLink > maxLocality:
		return fmt.Errorf("NVLink set %d is outside 0 to %d", s.NVLink, maxLocality)
	case s.Reason != "" && (s.Healthy || !isPlainName(string(s.Reason), maxReason)):
		return fmt.Errorf("%.64q is not the reason of a slice that takes no pods", string(s.Reason))
	}
	return s.checkAmounts()
}

func (s *Slice) checkAmounts() error {
	switch {
	case s.SMs < 1 || s.SMs > MaxSMs:
		return fmt.Errorf("%d SMs are outside 1 to %d", s.SMs, MaxSMs)
	case s.MemoryMiB < 1 || s.MemoryMiB > int64(share.MaxMemory/share.MiB):
		return fmt.Errorf("%d MiB are outside 1 to %d", s.MemoryMiB, int64(share.MaxMemory/share.MiB))
	case s.Reserve < 1 || s.Reserve > share.Whole:
		return fmt.Errorf("a reserve of %d per mille is outside 1 to %d", s.Reserve, share.Whole)
	case s.MaxShares < 1 || s.MaxShares > maxShares:
		return fmt.Errorf("%d shares are outside 1 to %d", s.MaxShares, maxShares)
	}
	return s.checkClasses()
}

func (s *Slice) checkClasses() error {
	switch {
	case (s.Swap != nil) != slices.Contains(s.Classes, share.Swap):
		return errors.New("class swap goes with what its shares may have beyond the memory of the slice, and that with the class")
	case s.Swap != nil && (s.Swap.HostMiB < 0 || s.Swap.HostMiB > int64(share.MaxMemory/share.MiB)):
		return fmt.Errorf("%d MiB of the host for class swap are outside 0 to %d", s.Swap.HostMiB, int64(share.MaxMemory/share.MiB))
	case s.Swap != nil && (s.Swap.KeptMiB < 0 || s.Swap.KeptMiB > int64(share.MaxMemory/share.MiB)):
		return fmt.Errorf("%d MiB that shares of class swap keep are outside 0 to %d", s.Swap.KeptMiB, int64(share.MaxMemory/share.MiB))
	}
	for i, class := range s.Classes {
		if !class.Schedulable() {
			return fmt.Errorf("%.64q is none of the classes exclusive, mps, elastic, swap", string(class))
		}
		if slices.Contains(s.Classes[:i], class) {
			return fmt.Errorf("class %s is there twice", class)
		}
	}
	return nil
}
