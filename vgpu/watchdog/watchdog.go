// Package watchdog decides which processes use a node's slices without a share that says so, since when, and what is due
// about them (DESIGN 4). It is told what was seen and what was granted; who looks, and who acts, is the node agent.
package watchdog

import (
	"slices"
	"time"
)

// Kind says what is wrong with a process on a slice.
type Kind string

// The kinds.
const (
	Stranger   Kind = "stranger"   // its container has no share
	Trespasser Kind = "trespasser" // its container has a share, of other slices
	Unhooked   Kind = "unhooked"   // its container shares the slice, but the token server does not know the process
	Outsider   Kind = "outsider"   // it is in no pod: reported, never ended
)

// Kinds lists them all.
var Kinds = []Kind{Stranger, Trespasser, Unhooked, Outsider}

// Process is one process with a context on a slice, as it was seen at one look.
type Process struct {
	PID       int
	Born      uint64 // its start, in the kernel's ticks: with the PID it names the process for good
	Slice     string
	Pod       string // UID; empty where it is in no pod
	Container string // name; empty where it is not known yet
	Session   bool   // the token server knows it
	Lent      bool   // another device plugin has given its container the device
	Ticketed  bool   // the kubelet has given its container tickets of gshare, or does not say
}

// Grant is what one container has been granted.
type Grant struct {
	Pod, Container string
	Slices         []string
	Hooked         bool // its processes have sessions at the token server
	BestEffort     bool // it runs where its share cannot be enforced
}

// verdict is what one look says of a process; spared is one that is never ended for it.
type verdict struct {
	kind   Kind // empty: it may be there
	spared bool
}

// judge holds one process against the grants. Where its container is not known, it has the benefit of all its pod's. What
// another plugin has lent is that plugin's mistake or the administrator's, not the process's.
func judge(p Process, grants []Grant) verdict {
	if p.Lent {
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

// Config is what a watch goes by.
type Config struct {
	Grace  time.Duration // how long a process may go without a session
	Linger time.Duration // how long a slice stays used after its last stranger was seen
	Repeat time.Duration // how often one thing is told of one pod
	Retry  time.Duration // how often one process is ended, should it live on
	End    bool          // strangers, trespassers and unhooked processes are ended
}
