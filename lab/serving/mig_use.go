package serving

import (
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
)

// MIGUse is the use of all MIG instances in one second, in compute slices.
type MIGUse struct {
	Total    int     // of all instances
	Occupied int     // of those held by functions, as slices of their own or shared in turn
	Active   float64 // of those at work, weighted by the fraction of the second in which they worked
}

// sliceUse measures how long MIG instances work, and how many are occupied.
type sliceUse struct {
	until    time.Duration
	compute  map[string]int // by slice
	busy     float64        // seconds of work, summed over all instances
	used     func(time.Duration, MIGUse)
	now      MIGUse // without Active
	bySecond map[time.Duration]float64
}

func newSliceUse(in *Input, all []pipeline.Slice) *sliceUse {
	u := &sliceUse{until: in.Until, compute: map[string]int{}, used: in.Used, bySecond: map[time.Duration]float64{}}
	for _, s := range all {
		u.compute[s.ID] = s.Kind.Compute
		u.now.Total += s.Kind.Compute
	}
	return u
}

// work counts an interval, starting now or later, in which a slice works.
func (u *sliceUse) work(slice string, from, takes time.Duration) {
	end := min(from+takes, u.until)
	if from >= end {
		return
	}
	u.busy += (end - from).Seconds()
	if u.used == nil {
		return
	}
	for from < end {
		second := from.Truncate(time.Second)
		part := min(end, second+time.Second) - from
		u.bySecond[second] += part.Seconds() * float64(u.compute[slice])
		from += part
	}
}

// report records the second that ends now. Call it before occupy, which sets what is occupied in the next second: slices are taken only between two
// seconds.
func (u *sliceUse) report(now time.Duration) {
	if u.used == nil || now > u.until {
		return
	}
	use := u.now
	use.Active = u.bySecond[now-time.Second]
	delete(u.bySecond, now-time.Second)
	u.used(now, use)
}

func (u *sliceUse) occupy(free []pipeline.Slice) {
	u.now.Occupied = u.now.Total
	for _, s := range free {
		u.now.Occupied -= s.Kind.Compute
	}
}
