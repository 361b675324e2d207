package pool

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Thresholds say when the residency of an instance changes given its use. Fields that are zero take the defaults in the comments.
type Thresholds struct {
	Up        share.PerMille // utilisation above which a shared instance is promoted; 600 (U10)
	Down      share.PerMille // utilisation below which a hot instance is demoted; 300
	Stay      time.Duration  // minimum time that an instance is hot or shared; 30 s
	ColdAfter time.Duration  // time without a request after which an instance is deleted; 10 min
}

// WithDefaults returns the thresholds with the defaults for the fields that are zero.
func (t Thresholds) WithDefaults() Thresholds {
	t.Up, t.Down = cmp.Or(t.Up, 600), cmp.Or(t.Down, 300)
	t.Stay, t.ColdAfter = cmp.Or(t.Stay, 30*time.Second), cmp.Or(t.ColdAfter, 10*time.Minute)
	return t
}

// Next returns the residency that an instance should have, given its present state (FluidFaaS, fig. 8; the numbers in the body are those
// of its arrows). A new instance is Shared. Next does not return Warm for a Shared instance: it is evicted when another function needs
// the memory.
func (t Thresholds) Next(now time.Duration, i *Instance) scaling.Residency {
	t = t.WithDefaults()
	stayed := now-i.Since >= t.Stay
	switch {
	case i.Residency == scaling.Shared && stayed && i.Utilisation > t.Up:
		return scaling.Hot // 2
	case i.Residency == scaling.Hot && stayed && i.Utilisation < t.Down:
		return scaling.Shared // 3
	case i.Residency != scaling.Hot && !i.Busy && now-i.LastUsed >= t.ColdAfter:
		return scaling.Cold // 5
	}
	return i.Residency
}
