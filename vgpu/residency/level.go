package residency

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Level is how ready an instance is to serve. A higher level holds at least as much of the slice as a lower one.
type Level int8

// The levels. Hot instances serve with their own SM-time, Shared ones in idle time only; Warm ones are parked, with their data in host
// memory; Cold ones have not started or are to be deleted. Unknown is not a level: after a restart, it is all that the agent
// knows about what it enforces.
const (
	Unknown Level = iota - 1
	Cold
	Warm
	Shared
	Hot
)

var levelNames = []string{Cold: "Cold", Warm: "Warm", Shared: "Shared", Hot: "Hot"}

// String returns the name of the level as it is written in annotations.
func (l Level) String() string {
	if l < Cold || l > Hot {
		return "Unknown"
	}
	return levelNames[l]
}

// Serves reports whether an instance at this level can answer requests.
func (l Level) Serves() bool { return l >= Shared }

// Charge returns the part of a share that counts on the slice at this level. A Shared instance counts with its memory only: its requests
// are 0, and so are its limits, which γ bounds. A Warm one counts with the memory that its parked process keeps on the device. At every
// level except Cold the instance also takes one of the places of the slice (MaxShares).
func (l Level) Charge(s share.Share, parked share.Bytes) share.Share {
	switch l {
	case Hot:
		return s
	case Shared:
		return share.Share{Memory: s.Memory}
	case Warm:
		return share.Share{Memory: min(parked, s.Memory)}
	}
	return share.Share{}
}

// MarshalText returns the name of the level. The error is a *share.FieldError for Unknown.
func (l Level) MarshalText() ([]byte, error) {
	if l < Cold || l > Hot {
		return nil, share.Invalid(fieldLevel, "%d is none of Cold, Warm, Shared, Hot", int(l))
	}
	return []byte(levelNames[l]), nil
}

// UnmarshalText parses the name of a level. The error is a *share.FieldError.
func (l *Level) UnmarshalText(name []byte) error {
	i := slices.Index(levelNames, string(name))
	if i < 0 {
		return share.Invalid(fieldLevel, "%.64q is none of Cold, Warm, Shared, Hot", name)
	}
	*l = Level(i)
	return nil
}
