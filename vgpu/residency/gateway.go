package residency

// MaySend reports whether a gateway may send a request to an instance. Shared instances may get requests too, when no Hot one is free; the
// caller orders them by r.Level.
func MaySend(w Wanted, r Reached) bool { return w.Level.Serves() && r.Level.Serves() }
