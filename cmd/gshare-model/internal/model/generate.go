package model

import (
	"context"
	"encoding/binary"
	"fmt"
)

// stream is a text that is being generated.
type stream struct {
	steps chan error // result of each step of the decoder; one that comes while the last is unread is dropped
}

// Generate runs a batch with only the prompt, and then calls emit for each token of the answer. All texts share the steps of one decoder, as in
// servers with continuous batching: each step runs one kernel and gives every text its next token. Token i is the checksum of the prompt
// followed by i as 4 bytes, little endian.
func (e *Engine) Generate(ctx context.Context, prompt []byte, tokens int, emit func(token string) error) error {
	if _, err := e.Infer(ctx, [][]byte{prompt}); err != nil {
		return err
	}
	s := e.join()
	defer e.leave(s)
	for i := range tokens {
		select {
		case err := <-s.steps:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := emit(Token(e.Table.Name, prompt, i)); err != nil {
			return err
		}
	}
	return nil
}

// Token returns token i of the answer to a prompt.
func Token(name string, prompt []byte, i int) string {
	return fmt.Sprintf("%08x", Checksum(name, binary.LittleEndian.AppendUint32(prompt[:len(prompt):len(prompt)], uint32(i))))
}

// join adds a text to the decoder, which runs while it has any.
func (e *Engine) join() *stream {
	s := &stream{make(chan error, 1)}
	d := &e.decoding
	d.Lock()
	defer d.Unlock()
	d.streams[s] = struct{}{}
	if !d.running {
		d.running = true
		go e.decode()
	}
	return s
}

func (e *Engine) leave(s *stream) {
	e.decoding.Lock()
	defer e.decoding.Unlock()
	delete(e.decoding.streams, s)
}

// decode runs steps until no text is left. Texts that begin during a step take part from the next one on.
func (e *Engine) decode() {
	d := &e.decoding
	for {
		d.Lock()
		if len(d.streams) == 0 {
			d.running = false
			d.Unlock()
			return
		}
		members := make([]*stream, 0, len(d.streams))
		for s := range d.streams {
			members = append(members, s)
		}
		d.Unlock()
		err := e.step()
		for _, s := range members {
			select {
			case s.steps <- err:
			default:
			}
		}
	}
}

// step runs the kernel of one token.
func (e *Engine) step() error {
	if err := e.begin(); err != nil {
		return err
	}
	defer e.end()
	kernel := e.Table.Batch(1)
	if e.Table.Token > 0 {
		kernel.Time = e.Table.Token
	}
	return e.run(context.Background(), func(w *worker) error {
		if err := w.Spin(kernel.Time, kernel.SM); err != nil {
			return err
		}
		return w.Wait()
	})
}
