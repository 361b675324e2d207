// Package watchdog decides which processes use a node's slices without a share that allows it, since when, and whether to report or
// kill them. The node agent supplies what it has observed and granted, and carries the decisions out.
package watchdog

import (
	"slices"
	"time"
)

// Kind is the way in which a process violates the shares of a slice.
type Kind string

// The kinds.
const (
	Stranger   Kind = "stranger"   // its container has no share
	Trespasser Kind = "trespasser" // its container has a share, of other slices
	Unhooked   Kind = "unhooked"   // its container shares the slice, but the process has no session at the token server
	Outsider   Kind = "outsider"   // it is in no pod; it is reported, never killed
)

// Kinds lists all kinds of violations.
var Kinds = []Kind{Stranger, Trespasser, Unhooked, Outsider}

// Process is an observed process with a CUDA context on a slice.
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

// Grant is the granted share of one container, as far as the watchdog needs it.
type Grant struct {
	Pod, Container string
	Slices         []string
	Hooked         bool // its processes must have sessions at the token server
	BestEffort     bool // it also runs where its share cannot be enforced
}

// classification is what the observation of a process shows: which kind of violation, if any, and whether it may be killed.
type classification struct {
	kind   Kind // empty: the process may use the slice
	spared bool // it is reported, but never killed
}

// classify compares a process with the grants. If its container is not known, it may use what any container of its pod may. If another
// device plugin has allocated the device to it, it violates nothing.
func classify(p Process, grants []Grant) classification {
	if p.AllocatedElsewhere {
		return classification{}
	}
	if p.Pod == "" {
		return classification{Outsider, true}
	}
	v := classification{Stranger, p.Ticketed}
	for _, g := range grants {
		switch {
		case g.Pod != p.Pod || p.Container != "" && g.Container != p.Container:
		case !slices.Contains(g.Slices, p.Slice):
			if v.kind == Stranger {
				v = classification{Trespasser, false}
			}
		case g.Hooked && !p.Session:
			v = classification{Unhooked, g.BestEffort}
		default:
			return classification{}
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
