package pool

import (
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// Review returns the residency that the instance at an index should have given its use; this may be the one that it has. Call it regularly
// for every instance, with have including the changes that the calls before it led to. Cold means: stop the instance.
//
// A busy instance is promoted and an idle one demoted (Thresholds.Next); at most one is Shared. The caller makes an instance Hot only
// if there is room for its SM-time. Counted instances are never stopped, and surplus ones never promoted. Warm ones are stopped until only
// the warm minimum is left.
func (p Policy) Review(now time.Duration, want []scaling.Instance, have []Instance, at int) scaling.Residency {
	i := &have[at]
	if i.Phase != Ready {
		return i.Residency
	}
	next := p.Residency.Next(now, i)
	counted := contains(want, i.ID)
	switch {
	case next == scaling.Hot && !counted,
		next == scaling.Shared && anotherShared(have, at),
		next == scaling.Cold && (counted || size(have) <= p.Warm):
		return i.Residency
	}
	return next
}

// LeastRecentlyUsed returns the index of the instance to make Warm if there is no room for another one: the one that has been idle
// longest among all functions' instances that are Shared, ready and not busy. It returns false if there is none.
func LeastRecentlyUsed(have []Instance) (at int, ok bool) {
	at = -1
	for n := range have {
		i := &have[n]
		if i.Residency == scaling.Shared && i.Phase == Ready && !i.Busy && (at < 0 || i.LastUsed < have[at].LastUsed) {
			at = n
		}
	}
	return at, at >= 0
}
