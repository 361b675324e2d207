package gateway

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
)

// item is one request on its way through the gateway.
type item struct {
	of       *function                // the function whose request it is
	queue    atomic.Pointer[function] // the function in whose queue it waits or waited last; changes with the mutexes of both functions held
	timeout  time.Duration            // its function's, as holdFor
	holdFor  time.Duration
	perToken time.Duration // objective of its function for the mean time between tokens; 0 if there is none
	request  batching.Request
	arrived  time.Time
	asked    demands
	due      time.Time // when it has to be answered; its deadline in the queue may be later
	cold     bool      // it was held for a function without replicas
	turn     chan turn // gets one value each time that the item waits, unless it is cancelled
	held     *time.Timer
	part     *part  // what can be batched; nil if the request is sent as it came
	batch    *batch // the batch in which a replica has it; guarded by the mutex of the queue's function, as is gone
	gone     bool   // the client no longer waits, or has been told that the batch takes too long
}

// mayRepeat reports whether the item may be sent once more after a transport failed with an error: its replica cannot have begun to serve it, or it
// does no harm if it is served twice.
func (it *item) mayRepeat(err error) bool {
	return isUnsent(err) || it.asked.repeatable || it.of.settings().Idempotent
}

// explicit reports whether due follows from a deadline of the client.
func (it *item) explicit() bool { return it.asked.timeout > 0 }

// waitsUntil returns until when the item may wait for a function without replicas that starts one later.
func (it *item) waitsUntil() time.Time {
	if until := it.arrived.Add(it.holdFor); until.Before(it.due) {
		return until
	}
	return it.due
}

// turn is what ends a request's wait: a replica with a credit for it, its part of the answer to a batch, or a refusal.
type turn struct {
	replica *replica
	flight  *flight
	answer  *answered
	refusal refusal
}

// began returns when the wait ended. For a batch that has been answered, that is when it was sent.
func (t turn) began() time.Time {
	if t.answer != nil {
		return t.answer.began
	}
	return time.Now()
}

// lockQueue returns the function in whose queue the item waits or waited last, with its mutex held.
func (it *item) lockQueue() *function {
	for {
		f := it.queue.Load()
		f.mu.Lock()
		if it.queue.Load() == f {
			return f
		}
		f.mu.Unlock()
	}
}

// stayed returns the items whose clients are still waiting.
func stayed(items []*item) []*item {
	gone := func(it *item) bool { return it.gone }
	if !slices.ContainsFunc(items, gone) {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), gone)
}

// cancel gives up an item whose client no longer waits, and counts its end in counter, which is one of the item's function. It returns false if the
// item has already got its turn, which is in its channel or about to be. A batch is given up when all its clients have gone.
func (it *item) cancel(counter *uint64) bool {
	f := it.lockQueue()
	defer f.mu.Unlock()
	inFlight := it.batch != nil
	switch at := slices.Index(f.held, it); {
	case inFlight:
		it.gone = true
		it.batch.leave()
	case at >= 0:
		f.held = slices.Delete(f.held, at, at+1)
		it.held.Stop()
	case f.items[it.request.ID] == it:
		f.queue.Remove(it.request)
		delete(f.items, it.request.ID)
	default:
		return false
	}
	it.of.count(func(s *statistics) {
		*counter++
		if inFlight {
			s.counts.InFlight--
		} else {
			s.counts.Waiting--
		}
	})
	return true
}

// refuse ends the wait of an item with a refusal. The mutex of the queue's function is held.
func (it *item) refuse(why refusal) {
	it.of.count(func(s *statistics) {
		s.counts.Waiting--
		s.counts.Refused++
	})
	it.turn <- turn{refusal: why}
}
