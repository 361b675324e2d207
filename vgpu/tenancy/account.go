package tenancy

import (
	"maps"
	"slices"
	"time"
)

// Pod names a pod.
type Pod struct{ Namespace, Name string }

// Account is what the pods of each namespace hold: those that have been seen, and those that are being created and have not been seen yet. It is never
// less than what the cluster has, if what is seen is late but in order, and one account alone creates pods. It is not safe for concurrent use.
type Account struct {
	namespaces map[string]*holding
}

// holding is what a namespace holds.
type holding struct {
	sum  Amount // of all pods
	pods map[string]*entry
}

// entry is the pod with a name, of which there is one at a time. One that is reserved may be the next one of the name, while the one before has not
// been seen to be gone: then the greater of the two counts.
type entry struct {
	seen     Amount
	uid      string // of the one that has been seen; empty if none is there
	reserved *reservation
}

type reservation struct {
	amount Amount
	uid    string // empty until the API server has said that the pod is created
	since  time.Time
	again  bool // one before it has not been answered: a pod may be there although this one is not created
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

// Namespaces returns those that hold something, sorted.
func (a *Account) Namespaces() []string { return slices.Sorted(maps.Keys(a.namespaces)) }

// Check returns what Reserve would, and takes nothing.
func (a *Account) Check(p Pod, amount Amount, limits []Limit) []Excess {
	before := Amount{}
	if h := a.namespaces[p.Namespace]; h != nil && h.pods[p.Name] != nil {
		before = h.pods[p.Name].amount()
	}
	return Check(limits, a.Held(p.Namespace), greater(before, amount).minus(before))
}

// Reserve takes an amount for a pod that is to be created now, if the limits of its namespace let it. Else it takes nothing and returns what is too
// much. What is taken for a pod of this name already is not taken twice.
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

// Created notes that the pod for which something is reserved is there, and has a UID.
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

// Release gives back what was last reserved for a pod, since the API server has refused to create it.
func (a *Account) Release(p Pod) {
	a.change(p, func(e *entry) {
		if e.reserved != nil && !e.reserved.again {
			e.reserved = nil
		}
	})
}

// Forget gives back all that is reserved for a pod, since the API server has none of its name.
func (a *Account) Forget(p Pod) { a.change(p, func(e *entry) { e.reserved = nil }) }

// Seen notes that a pod is there and what it holds.
func (a *Account) Seen(p Pod, uid string, amount Amount) {
	a.change(p, func(e *entry) {
		e.seen, e.uid = amount, uid
		if e.reserved != nil && e.reserved.uid == uid {
			e.reserved = nil
		}
	})
}

// Gone notes that a pod that may have been seen holds nothing any more.
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

// Unconfirmed returns the pods for which something has been reserved before a time and that have not been seen since. The answer of the API server may
// be lost, or the pod be gone before it was seen: whoever asks the API server can tell by Created or Forget.
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

// change changes the entry of a pod, and the sum of its namespace with it.
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
