package tenancy

import (
	"maps"
	"slices"
	"time"
)

// Pod names a pod.
type Pod struct{ Namespace, Name string }

// Account tracks what the pods of each namespace hold: pods that have been seen, and pods that are being created and have not been seen
// yet. It never counts less than the cluster has, provided that what is seen arrives in order, however late, and that pods are created
// through this account only. It is not safe for concurrent use.
type Account struct {
	namespaces map[string]*holding
}

// holding is what a namespace holds.
type holding struct {
	sum  Amount // over all pods
	pods map[string]*entry
}

// entry accounts for the pod of one name. A new pod of the name may be reserved before its predecessor has been seen to be gone; until then
// the greater of the two amounts counts.
type entry struct {
	seen     Amount
	uid      string // of the pod that has been seen; empty if none is there
	reserved *reservation
}

type reservation struct {
	amount Amount
	uid    string // empty until the API server has confirmed that the pod is created
	since  time.Time
	again  bool // it follows a reservation whose outcome is unknown: even if this creation fails, a pod may exist
}

func (e *entry) amount() Amount {
	if e.reserved == nil {
		return e.seen
	}
	return greater(e.seen, e.reserved.amount)
}

// NewAccount returns an account without pods.
func NewAccount() *Account { return &Account{namespaces: map[string]*holding{}} }

// Held returns what a namespace holds.
func (a *Account) Held(namespace string) Amount {
	if h := a.namespaces[namespace]; h != nil {
		return h.sum
	}
	return Amount{}
}

// Namespaces returns the namespaces that hold something, sorted.
func (a *Account) Namespaces() []string { return slices.Sorted(maps.Keys(a.namespaces)) }

// Check returns what Reserve would return, without reserving anything.
func (a *Account) Check(p Pod, amount Amount, limits []Limit) []Excess {
	before := Amount{}
	if h := a.namespaces[p.Namespace]; h != nil && h.pods[p.Name] != nil {
		before = h.pods[p.Name].amount()
	}
	return Check(limits, a.Held(p.Namespace), greater(before, amount).minus(before))
}

// Reserve reserves an amount for a pod that is about to be created, if the limits of its namespace allow it. Otherwise it reserves nothing
// and returns the limits that would be exceeded. What this pod name holds already is not counted twice.
func (a *Account) Reserve(p Pod, amount Amount, limits []Limit, now time.Time) []Excess {
	if excess := a.Check(p, amount, limits); len(excess) > 0 {
		return excess
	}
	a.change(p, func(e *entry) {
		r := &reservation{amount: amount, since: now}
		if e.reserved != nil {
			r.amount, r.again = greater(e.reserved.amount, amount), true
		}
		e.reserved = r
	})
	return nil
}

// Created records that the API server has created the pod for which an amount is reserved, with this UID.
func (a *Account) Created(p Pod, uid string) {
	a.change(p, func(e *entry) {
		switch {
		case e.reserved == nil:
		case e.uid == uid:
			e.reserved = nil
		default:
			e.reserved.uid = uid
		}
	})
}

// Release gives back what was last reserved for a pod, because the API server has refused to create it.
func (a *Account) Release(p Pod) {
	a.change(p, func(e *entry) {
		if e.reserved != nil && !e.reserved.again {
			e.reserved = nil
		}
	})
}

// Forget gives back everything reserved for a pod, because the API server has no pod of its name.
func (a *Account) Forget(p Pod) { a.change(p, func(e *entry) { e.reserved = nil }) }

// Seen records that a pod exists and what it holds.
func (a *Account) Seen(p Pod, uid string, amount Amount) {
	a.change(p, func(e *entry) {
		e.seen, e.uid = amount, uid
		if e.reserved != nil && e.reserved.uid == uid {
			e.reserved = nil
		}
	})
}

// Gone records that a pod, whether or not it was seen, no longer holds anything.
func (a *Account) Gone(p Pod, uid string) {
	a.change(p, func(e *entry) {
		if e.uid == uid {
			e.seen, e.uid = Amount{}, ""
		}
		if e.reserved != nil && e.reserved.uid == uid {
			e.reserved = nil
		}
	})
}

// Unconfirmed returns the pods for which something was reserved before the given time and that have not been seen since: the API server's
// answer may have been lost, or the pod may have been deleted before it was seen. The caller can ask the API server and then call Created
// or Forget.
func (a *Account) Unconfirmed(before time.Time) []Pod {
	var found []Pod
	for namespace, h := range a.namespaces {
		for name, e := range h.pods {
			if e.reserved != nil && e.reserved.since.Before(before) {
				found = append(found, Pod{namespace, name})
			}
		}
	}
	return found
}

// change applies a function to the entry of a pod, and updates the sum of its namespace.
func (a *Account) change(p Pod, do func(*entry)) {
	h := a.namespaces[p.Namespace]
	if h == nil {
		h = &holding{pods: map[string]*entry{}}
		a.namespaces[p.Namespace] = h
	}
	e := h.pods[p.Name]
	if e == nil {
		e = &entry{}
		h.pods[p.Name] = e
	}
	before := e.amount()
	do(e)
	h.sum = h.sum.minus(before).Plus(e.amount())
	if e.uid == "" && e.reserved == nil {
		delete(h.pods, p.Name)
	}
	if len(h.pods) == 0 {
		delete(a.namespaces, p.Namespace)
	}
}
