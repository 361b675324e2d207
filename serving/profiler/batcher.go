package profiler

import (
	"context"
	"sync"

	"github.com/gshare-dev/gshare/serving/load"
)

// batcher is a load.Sender that holds single-row requests until the server has room, and then sends all waiting ones as one batch, up to a
// maximum size. A gateway treats a server the same way, so the rate measured this way is that of a replica.
type batcher struct {
	ctx    context.Context
	server Server
	batch  int
	sent   sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	free    int        // number of requests that the server may be sent now
	waiting []chan load.Answer
}

func newBatcher(ctx context.Context, s Server, batch, concurrency int) *batcher {
	return &batcher{ctx: ctx, server: s, batch: batch, free: concurrency}
}

// Send implements load.Sender.
func (b *batcher) Send(ctx context.Context, _ int) load.Answer {
	answer := make(chan load.Answer, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, answer)
	b.dispatch()
	b.mu.Unlock()
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		b.mu.Lock() // a request of the same batch may have ended the step while the others are getting their answers
		defer b.mu.Unlock()
		select {
		case a := <-answer:
			return a
		default:
			return load.Answer{Status: "no answer"}
		}
	}
}

// dispatch sends waiting requests as long as the server has room. The caller holds the lock.
func (b *batcher) dispatch() {
	for b.free > 0 && len(b.waiting) > 0 && b.ctx.Err() == nil {
		rows := b.waiting[:min(len(b.waiting), b.batch)]
		b.waiting = b.waiting[len(rows):]
		b.free--
		b.sent.Go(func() {
			a := b.server.Infer(b.ctx, len(rows))
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, row := range rows {
				row <- a
			}
			b.free++
			b.dispatch()
		})
	}
}

// wait waits for the requests that are still at the server.
func (b *batcher) wait() { b.sent.Wait() }
