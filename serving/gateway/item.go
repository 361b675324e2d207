package gateway

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/batching"
)

// item is one request on its way through the gateway.
type item struct {
	of       *function                // whose request it is
	queue    atomic.Pointer[function] // where it waits, or waited last; changes with the mutexes of both functions
	timeout  time.Duration            // of its function, as holdFor
	holdFor  time.Duration
	request  batching.Request
	arrived  time.Time
	due      time.Time // when it is to be answered; the queue may have a later deadline
	explicit bool      // due is the client's
	cold     bool      // was held
	turn     chan turn // gets one value for each time that the item waits and is not cancelled
	held     *time.Timer
	part     *part  // what may be sent with others; nil if it is sent as it came
	batch    *batch // that a replica has with it; guarded by the mutex of the queue's function, as gone
	gone     bool   // the client does not wait any more, or has been told that its batch takes too long
}

// turn is the end of a request's wait: a replica with a credit for it, the answer to a batch, or a refusal.
type turn struct {
	replica *replica
	flight  *flight
	answer  *answered
	refusal refusal
}

// began returns when the wait ended: for a batch that was answered, when it was sent.
func (t turn) began() time.Time {
	if t.answer != nil {
		return t.answer.began
	}
	return time.Now()
}

// lockQueue returns the function in whose queue an item waits or waited last, with its mutex held.
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

// stayed returns the items whose clients still wait.
func stayed(items []*item) []*item {
	gone := func(it *item) bool { return it.gone }
	if !slices.ContainsFunc(items, gone) {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), gone)
}

// cancel gives up an item whose client does not wait any more, and counts its end. It returns false if the item has got its turn, which is then
// in its channel or about to be. A batch is given up when all its clients have gone. counter is one of the item's function.
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

// refuse ends the wait of an item. The mutex of the queue's function is held.
func (it *item) refuse(why refusal) {
	it.of.count(func(s *statistics) {
		s.counts.Waiting--
		s.counts.Refused++
	})
	it.turn <- turn{refusal: why}
}
