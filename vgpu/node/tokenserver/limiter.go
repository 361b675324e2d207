package tokenserver

import "time"

// limiter is a token bucket: rate frames a second, twice as many at once. It bounds what a connection can make the
// server do. The zero value allows nothing.
type limiter struct {
	rate  int64
	saved int64 // frames x seconds, in ns
	last  time.Duration
}

func newLimiter(rate int64, now time.Duration) limiter {
	return limiter{rate: rate, saved: 2 * rate * int64(time.Second), last: now}
}

// allow counts one frame.
func (l *limiter) allow(now time.Duration) bool {
	full := 2 * l.rate * int64(time.Second)
	elapsed := min(max(0, now-l.last), 2*time.Second)
	l.last = max(l.last, now)
	l.saved = min(full, l.saved+l.rate*int64(elapsed))
	if l.saved < int64(time.Second) {
		return false
	}
	l.saved -= int64(time.Second)
	return true
}
