// Package watchdog decides which processes use a node's slices without a share that allows it, since when, and whether to report or
// kill them. The node agent supplies what it has observed and granted, and carries the decisions out.
package watchdog

import (
	"slices"
	"time"
)

// Kind classifies what is wrong with a process on a slice.
type Kind string

// The kinds.
const (
	Stranger   Kind = "stranger"   // its container has no share
	Trespasser Kind = "trespasser" // its container has a share, of other slices
	Unhooked   Kind = "unhooked"   // its container shares the slice, but the process has no session at the token server
	Outsider   Kind = "outsider"   // it is in no pod; it is reported, never killed
)

// Kinds lists all kinds.
var Kinds = []Kind{Stranger, Trespasser, Unhooked, Outsider}

// Process is one process with a context on a slice, as it was observed once.
type Process struct {
	PID                int
	StartTime          uint64 // in the kernel's ticks; PIDs are used again, a PID with a start time is not
	Slice              string
	Pod                string // UID; empty where it is in no pod
	Container          string // name; empty where it is not known yet
	Session            bool   // it has a session at the token server
	AllocatedElsewhere bool   // another device plugin has allocated the device to its container
	Ticketed           bool   // the kubelet has allocated tickets of gshare to its container, or may have
}

// Grant is the share of one container.
type Grant struct {
	Pod, Container string
	Slices         []string
	Hooked         bool // its processes must have sessions at the token server
	BestEffort     bool // it also runs where its share cannot be enforced
}

// verdict is what one observation of a process shows.
type verdict struct {
	kind   Kind // empty: the process may use the slice
	spared bool // it is reported, but never killed
}

// judge compares one process with the grants. A process of an unknown container may use what any container of its pod may. A device that
// another plugin has allocated is that plugin's mistake, or the administrator's, and not the process's.
func judge(p Process, grants []Grant) verdict {
	if p.AllocatedElsewhere {
		return verdict{}
	}
	if p.Pod == "" {
		return verdict{Outsider, true}
	}
	v := verdict{Stranger, p.Ticketed}
	for _, g := range grants {
		switch {
		case g.Pod != p.Pod || p.Container != "" && g.Container != p.Container:
		case !slices.Contains(g.Slices, p.Slice):
			if v.kind == Stranger {
				v = verdict{Trespasser, false}
			}
		case g.Hooked && !p.Session:
			v = verdict{Unhooked, g.BestEffort}
		default:
			return verdict{}
		}
	}
	return v
}

// Config configures a Watch.
type Config struct {
	Grace  time.Duration // how long a process may use a slice before it has a session
	Linger time.Duration // how long a slice counts as used after its last stranger was observed
	Repeat time.Duration // between two reports of one kind on one pod
	Retry  time.Duration // between two attempts to kill one process
	Kill   bool          // kill strangers, trespassers and unhooked processes
}
