package residency

// MaySend reports whether a gateway may send a request to an instance. A Shared one may get requests too, if no Hot one is free: order
// them by r.Level.
func MaySend(w Wanted, r Reached) bool { return w.Level.Serves() && r.Level.Serves() }

// HasStopped is the answer of a gateway to the controller: whether it has seen the asked Wanted, so that it sends no further request to the
// instance, and none is in flight.
func HasStopped(seen, asked Wanted, inFlight int) bool {
	return seen.Seq >= asked.Seq && !seen.Level.Serves() && inFlight == 0
}
