package residency

// MaySend reports whether a gateway may send a request to an instance. Shared instances may get requests too, when no Hot one is free; the
// caller orders them by r.Level.
func MaySend(w Wanted, r Reached) bool { return w.Level.Serves() && r.Level.Serves() }

// HasStopped is a gateway's answer to the controller: whether the gateway has seen the Wanted that the controller asks about, so that it
// sends no more requests to the instance, and has none in flight.
func HasStopped(seen, asked Wanted, inFlight int) bool {
	return seen.Seq >= asked.Seq && !seen.Level.Serves() && inFlight == 0
}
