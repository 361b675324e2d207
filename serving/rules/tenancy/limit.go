// Package tenancy decides whether the pods of a namespace may take more of the cluster's GPUs, and tracks what the pods of each namespace
// hold.
package tenancy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MiB is an amount of device memory in MiB, because the memory of all pods of a cluster in bytes could overflow an integer.
type MiB int64

// Amount is how much of the GPUs pods hold.
type Amount struct {
	Replicas int        // pods
	Area     share.Area // guaranteed SM-time
	Memory   MiB
}

// AmountOf returns what a pod with this request holds, whatever its residency, since it may be raised to its whole share at any time. With
// isolation exclusive it holds all SM-time of its devices, since nobody else gets any of it, but only the memory that it requests, since
// the memory of the devices is not known here. Its weights count on each device as if it shared them with nobody, since which pods share
// them is not known before placement.
func AmountOf(r share.Request) Amount {
	a := Amount{Replicas: 1, Area: r.Area()}
	if r.Isolation == share.Exclusive {
		a.Area = 0
	}
	for _, c := range r.Containers {
		if r.Isolation == share.Exclusive {
			a.Area += share.Area(c.VGPUs) * share.WholeArea
		}
		a.Memory += MiB(c.VGPUs) * MiB((c.Share.Memory+share.MemoryOf(r.Weights)+share.MiB-1)/share.MiB)
	}
	return a
}

// Plus returns the sum of two amounts.
func (a Amount) Plus(b Amount) Amount {
	return Amount{a.Replicas + b.Replicas, a.Area + b.Area, a.Memory + b.Memory}
}

func (a Amount) minus(b Amount) Amount {
	return Amount{a.Replicas - b.Replicas, a.Area - b.Area, a.Memory - b.Memory}
}

func greater(a, b Amount) Amount {
	return Amount{max(a.Replicas, b.Replicas), max(a.Area, b.Area), max(a.Memory, b.Memory)}
}

// Limit is the most that a policy lets the pods of a namespace hold. A nil field sets no limit.
type Limit struct {
	Policy   string
	Replicas *int
	Area     *share.Area
	Memory   *MiB
}

// Resource is what a limit applies to, in the words of users.
type Resource string

// The resources.
const (
	Replicas Resource = "replicas"
	Area     Resource = "SM-time"
	Memory   Resource = "device memory"
)

// Excess says by how much a namespace exceeds a limit. Its amounts are in the unit of the resource: pods, SM per mille times quota per
// mille, or MiB.
type Excess struct {
	Policy            string
	Resource          Resource
	Limit, Held, More int64 // More is what was requested in addition to Held
}

// String names the policy, and says by how much more than it allows would be held.
func (e Excess) String() string {
	text := func(amount int64) string { return format(e.Resource, amount) }
	of := " of "
	if e.Resource == Replicas {
		of = " "
	}
	limit := fmt.Sprintf("SharePolicy %s allows %s%s%s", e.Policy, text(e.Limit), of, e.Resource)
	if e.More == 0 {
		return fmt.Sprintf("%s, and %s are held: %s too much", limit, text(e.Held), text(e.Held-e.Limit))
	}
	return fmt.Sprintf("%s, of which %s are held, and %s more would be %s too much", limit, text(e.Held), text(e.More), text(e.Held+e.More-e.Limit))
}

// format formats an amount as users write it, such as 240% of a GPU's SM-time, 1525Mi, or 3.
func format(r Resource, amount int64) string {
	switch r {
	case Area:
		hundredths := amount / (int64(share.WholeArea) / 10_000)
		return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100), "0"), ".") + "%"
	case Memory:
		return strconv.FormatInt(amount, 10) + "Mi"
	}
	return strconv.FormatInt(amount, 10)
}

// Check returns the limits that a namespace would exceed if it took the amount more in addition to held. A limit that is exceeded already
// does not keep the namespace from taking more of other resources.
func Check(limits []Limit, held, more Amount) []Excess {
	var found []Excess
	for _, l := range limits {
		add := func(r Resource, limit, held, more int64) {
			if more > 0 && held+more > limit {
				found = append(found, Excess{l.Policy, r, limit, held, more})
			}
		}
		l.each(held, more, add)
	}
	return found
}

// Exceeded returns the limits that a namespace exceeds with what it holds, which it took before the limits were set.
func Exceeded(limits []Limit, held Amount) []Excess {
	var found []Excess
	for _, l := range limits {
		l.each(held, Amount{}, func(r Resource, limit, held, _ int64) {
			if held > limit {
				found = append(found, Excess{l.Policy, r, limit, held, 0})
			}
		})
	}
	return found
}

// each calls a function for each resource that has a limit.
func (l *Limit) each(held, more Amount, do func(r Resource, limit, held, more int64)) {
	if l.Replicas != nil {
		do(Replicas, int64(*l.Replicas), int64(held.Replicas), int64(more.Replicas))
	}
	if l.Area != nil {
		do(Area, int64(*l.Area), int64(held.Area), int64(more.Area))
	}
	if l.Memory != nil {
		do(Memory, int64(*l.Memory), int64(held.Memory), int64(more.Memory))
	}
}
