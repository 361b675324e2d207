package residency

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Meter measures the fraction of a sliding window in which a slice or a function was in use. The zero value is ready to use.
type Meter struct {
	spans []busySpan
	total time.Duration // of spans
}

// busySpan is an interval of use, [from, to).
type busySpan struct{ from, to time.Duration }

// Add records an interval of use. Intervals are added in order; any part of one before the end of the last one is ignored.
func (m *Meter) Add(from, to time.Duration) {
	if n := len(m.spans); n > 0 {
		from = max(from, m.spans[n-1].to)
	}
	if to > from {
		m.spans, m.total = append(m.spans, busySpan{from, to}), m.total+to-from
	}
}

// Utilisation returns the fraction of the window before now that was in use; 0 for an empty window.
func (m *Meter) Utilisation(now, window time.Duration) share.PerMille {
	if window <= 0 {
		return 0
	}
	start, gone := now-window, 0
	for gone < len(m.spans) && m.spans[gone].to <= start {
		m.total -= m.spans[gone].to - m.spans[gone].from
		gone++
	}
	m.spans = m.spans[gone:]
	used := m.total
	if len(m.spans) > 0 {
		used -= max(0, start-m.spans[0].from)
		used -= max(0, m.spans[len(m.spans)-1].to-now)
	}
	return ratio(max(0, used), window)
}

func ratio(used, window time.Duration) share.PerMille {
	return share.PerMille(float64(used) / float64(window) * float64(share.Whole))
}

// deadlineOutcomes counts, in a sliding window, the finished requests and those among them that missed a deadline that was feasible when
// they arrived.
type deadlineOutcomes struct {
	list  []outcome
	count int // number of late requests in list
}

type outcome struct {
	at   time.Duration
	late bool
}

func (o *deadlineOutcomes) add(now, window time.Duration, late bool) {
	o.dropUntil(now - window)
	o.list = append(o.list, outcome{now, late})
	if late {
		o.count++
	}
}

// lateRatio returns the fraction of the window's requests that were late, in per mille.
func (o *deadlineOutcomes) lateRatio(now, window time.Duration) share.PerMille {
	if o.dropUntil(now - window); len(o.list) == 0 {
		return 0
	}
	return share.PerMille(o.count * int(share.Whole) / len(o.list))
}

func (o *deadlineOutcomes) dropUntil(before time.Duration) {
	gone := 0
	for gone < len(o.list) && o.list[gone].at <= before {
		if o.list[gone].late {
			o.count--
		}
		gone++
	}
	o.list = o.list[gone:]
}
