package residency

// Counted returns the level at which the scheduler counts a pod on the slices of its placement. It is never below what the agent has
// recorded, and so never below what is enforced.
//
// A pod that has not started counts as Hot, because the agent may be about to admit it. A pod that is to be deleted counts as Hot until
// it is gone, because the agent may still carry out an earlier raise.
func Counted(w Wanted, r Reached) Level {
	if w.Level == Cold || r.Level == Cold {
		return Hot
	}
	return max(w.Level, r.Level)
}
