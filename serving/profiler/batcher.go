package profiler

import (
	"context"
	"sync"

	"github.com/gshare-dev/gshare/serving/load"
)

// batcher is a load.Sender that holds requests of one row until the server has room, and then sends all that wait as one, up to a size. That
// is what a gateway does with a server, so the rate that this way allows is that of a replica.
type batcher struct {
	ctx    context.Context
	server Server
	batch  int
	sent   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	free    int        // requests that the server may get now
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
		b.mu.Lock() // one of the same batch may have ended the step, while the others get their answers
		defer b.mu.Unlock()
		select {
		case a := <-answer:
			return a
		default:
			return load.Answer{Status: "no answer"}
		}
	}
}

// dispatch sends what waits, as far as the server has room. The caller holds the lock.
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

// wait waits for the requests that the server still has.
func (b *batcher) wait() { b.sent.Wait() }
