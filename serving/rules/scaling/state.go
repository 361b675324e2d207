package scaling

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Residency is how quickly an instance can serve requests, from Hot (at once) to Cold (it has to be created).
type Residency int

// Hot instances serve. Shared instances serve in turn with those of other functions, and Warm ones are in host memory: both become
// Hot faster than a new instance starts. Cold instances are deleted.
const (
	Hot Residency = iota
	Shared
	Warm
	Cold
)

func (r Residency) String() string {
	switch r {
	case Hot:
		return "Hot"
	case Shared:
		return "Shared"
	case Warm:
		return "Warm"
	}
	return "Cold"
}

// ID identifies an instance of a function. Later instances have higher IDs.
type ID int

// Instance is one running or starting copy of a function, as the autoscaler sees it.
type Instance struct {
	ID            ID
	Configuration Configuration
	Residency     Residency
	Since         time.Duration // when its residency last changed
}

// State is what the autoscaler remembers of a function between two decisions. The zero value is a function without instances. The caller
// removes instances that fail and are not started again.
type State struct {
	Samples   []Sample   // oldest first
	Instances []Instance // by ID ascending
	LastID    ID
	recent    []work // of the last minute, oldest first; not in the JSON, so it is empty after a restart
	reserve   reserve
}

// Without returns s without the instance id. It does not modify s.
func (s State) Without(id ID) State {
	s.Instances = slices.DeleteFunc(slices.Clone(s.Instances), func(i Instance) bool { return i.ID == id })
	return s
}

// Replace returns s with the instance id replaced by an existing instance that s does not contain: its ID is by and it runs with
// the configuration with. It does not modify s.
func (s State) Replace(id, by ID, with Configuration) State {
	s.Instances = slices.Clone(s.Instances)
	for at := range s.Instances {
		if i := &s.Instances[at]; i.ID == id {
			i.ID, i.Configuration = by, with
		}
	}
	slices.SortFunc(s.Instances, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

func (s *State) validate(now time.Duration) error {
	last := ID(0)
	for _, i := range s.Instances {
		switch {
		case i.ID <= last || i.ID > s.LastID:
			return share.Invalid("instances", "ID %d is not between %d and %d", i.ID, last, s.LastID)
		case i.Residency < Hot || i.Residency > Warm:
			return share.Invalid("residency", "%d of instance %d is none of Hot, Shared, Warm", int(i.Residency), i.ID)
		case i.Since > now:
			return share.Invalid("since", "%v of instance %d is later than now, %v", i.Since, i.ID, now)
		}
		if err := i.Configuration.validate(); err != nil {
			return err
		}
		last = i.ID
	}
	return s.validateSamples(now)
}

func (s *State) validateSamples(now time.Duration) error {
	at := time.Duration(math.MinInt64)
	for _, sample := range s.Samples {
		if sample.At < at {
			return share.Invalid("samples", "time %v follows %v", sample.At, at)
		}
		if err := checkLoad(sample.Load); err != nil {
			return err
		}
		at = sample.At
	}
	if now < at {
		return share.Invalid("samples", "time %v follows %v", now, at)
	}
	return nil
}

// hotInstances returns the indices of the Hot instances in the order in which to demote them: the least efficient first, and the youngest
// first among equally efficient ones.
func (s *State) hotInstances() []int {
	at := make([]int, 0, len(s.Instances))
	for i := range s.Instances {
		if s.Instances[i].Residency == Hot {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(a, b int) int {
		x, y := &s.Instances[a], &s.Instances[b]
		return cmp.Or(cmp.Compare(x.Configuration.PerResource(), y.Configuration.PerResource()), cmp.Compare(y.ID, x.ID)) // F8
	})
	return at
}

// spareInstances returns the indices of the instances that are not Hot, in the order in which to promote them: Shared before Warm, then
// the most efficient first, then the oldest first.
func (s *State) spareInstances() []int {
	var at []int // most of the time there are none
	for i := range s.Instances {
		if s.Instances[i].Residency != Hot {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(a, b int) int {
		x, y := &s.Instances[a], &s.Instances[b]
		return cmp.Or(cmp.Compare(x.Residency, y.Residency),
			cmp.Compare(y.Configuration.PerResource(), x.Configuration.PerResource()), cmp.Compare(x.ID, y.ID))
	})
	return at
}

// serving returns the number of instances that get requests, or will once they are ready: all but the Warm ones.
func (s *State) serving() (n int) {
	for _, i := range s.Instances {
		if i.Residency <= Shared {
			n++
		}
	}
	return n
}

func (s *State) throughputs(at []int) []Rate {
	rates := make([]Rate, len(at))
	for i, position := range at {
		rates[i] = s.Instances[position].Configuration.Throughput
	}
	return rates
}

// throughputOf returns the sum of the throughputs of the instances at the given indices, added up in the order of at.
func (s *State) throughputOf(at []int) Rate {
	var total Rate
	for _, position := range at {
		total += s.Instances[position].Configuration.Throughput
	}
	return total
}
