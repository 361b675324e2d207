package tokenserver

import "time"

// WaitBounds are the upper bounds of the classes in which waits are counted; the last class has none.
var WaitBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// Waits counts how long processes waited for a token: from when the server knew of it to when their page said RUN.
type Waits struct {
	Classes [len(WaitBounds) + 1]uint64
	Count   uint64
	Sum     time.Duration
	Stalls  uint64 // waits longer than a window, in which every share has its part
}

func (w *Waits) add(wait, window time.Duration) {
	class := 0
	for class < len(WaitBounds) && wait > WaitBounds[class] {
		class++
	}
	w.Classes[class]++
	w.Count++
	w.Sum += wait
	if wait > window {
		w.Stalls++
	}
}
