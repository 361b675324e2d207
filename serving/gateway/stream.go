package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// restOfStream is what the client of a stream sends after its first message. A stream on which nothing comes for idleTimeout, neither from its client
// nor from its replica, is ended, since it would withhold a credit from others; so is one whose replica does not take what its client has sent.
// Once the client has sent everything, it may wait for the rest of the answer for as long as it likes.
//
// When the gateway shuts down, the replica gets the messages that have arrived completely and then the end of the stream, as if the client had sent
// everything. So the replica answers what it has got, and ends the stream.
type restOfStream struct {
	from   io.Reader
	reader *io.PipeReader // for the transport
	writer *io.PipeWriter

	mu       sync.Mutex // guards what follows
	messages messages
	ended    bool                    // the client has sent everything, or the answer is complete
	err      error                   // what has ended it before that
	waiting  bool                    // waiting for the client: all that came before has been sent
	cancel   context.CancelCauseFunc // takes the stream away from the replica; nil before the replica has it
	idle     *time.Timer             // calls endIdle; nil before the replica has the stream
	stopping bool
	cut      bool        // the replica got the end of the stream before the client had sent it
	silence  *time.Timer // ends a stream whose replica no longer answers while the gateway shuts down
}

func newRestOfStream(from io.Reader) *restOfStream {
	s := &restOfStream{from: from}
	s.reader, s.writer = io.Pipe()
	return s
}

// errStopping is why the gateway ends a stream that has not ended by itself after the gateway began to shut down; refuseStopping is what its client
// gets. The client also gets it if the replica has ended the stream because of the shutdown: the last messages may not have been answered.
var (
	errStopping    = errors.New("the gateway shuts down")
	refuseStopping = newRefusal(causeStopping, errStopping.Error())
)

// start begins to read what the client sends. cancel takes the stream away from the replica.
func (s *restOfStream) start(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	s.idle = time.AfterFunc(idleTimeout, s.endIdle)
	if s.stopping {
		s.stopLocked()
	}
	go s.copy()
}

// copy passes on what the client sends until that ends. The transport does not read from the client itself: only a pipe, which it reads instead, can
// be ended without an error.
func (s *restOfStream) copy() {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for s.await() {
		n, err := s.from.Read(*buffer)
		n, last := s.received((*buffer)[:n], err)
		if _, broken := s.writer.Write((*buffer)[:n]); broken != nil { // the answer is complete
			return
		}
		if last != nil {
			s.writer.CloseWithError(last)
			return
		}
	}
}

// await notes that everything that has arrived has been sent, and reports whether more is wanted.
func (s *restOfStream) await() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	if s.stopping {
		s.cutOff()
	}
	s.extendLocked()
	return !s.cut
}

// received notes what has arrived. It returns how much of that is to be sent, and the error that comes after it if nothing more does, io.EOF at the end.
func (s *restOfStream) received(b []byte, err error) (n int, last error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.extendLocked()
	if s.cut {
		return 0, io.EOF
	}
	for n < len(b) && !(s.stopping && s.messages.isBetween()) {
		n += s.messages.next(b[n:])
	}
	if n < len(b) {
		s.cut = true
		return n, io.EOF
	}
	if err != nil && !s.ended && s.err == nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	s.ended = s.ended || err != nil
	return n, err
}

// stop ends the stream as soon as its replica has answered what it has.
func (s *restOfStream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	if s.cancel != nil {
		s.stopLocked()
	}
}

func (s *restOfStream) stopLocked() {
	cancel := s.cancel
	s.silence = time.AfterFunc(idleTimeout, func() { cancel(errStopping) })
	s.cutOff()
}

// cutOff sends the end of the stream to the replica, unless a message has been sent in part.
func (s *restOfStream) cutOff() {
	if s.waiting && s.messages.isBetween() && !s.ended {
		s.cut = true
		s.writer.Close()
	}
}

// extend notes that something has come from the replica, so that the stream is not idle.
func (s *restOfStream) extend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extendLocked()
	if s.silence != nil {
		s.silence.Reset(idleTimeout)
	}
}

func (s *restOfStream) extendLocked() {
	if s.idle != nil && !s.ended && !s.cut { // an answer may come before the stream begins
		s.idle.Reset(idleTimeout)
	}
}

// endIdle takes the stream away from the replica because nothing has come, neither from the replica nor, as far as it has taken that, from the client.
func (s *restOfStream) endIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.cut || s.err != nil {
		return
	}
	s.err = os.ErrDeadlineExceeded
	s.cancel(s.err)
}

// Read returns what the replica is to get.
func (s *restOfStream) Read(b []byte) (int, error) { return s.reader.Read(b) }

// Close ends the use of the client's connection.
func (s *restOfStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, timer := range []*time.Timer{s.idle, s.silence} {
		if timer != nil {
			timer.Stop()
		}
	}
	return s.reader.Close()
}

// isIdle reports whether the stream was ended because nothing came.
func (s *restOfStream) isIdle() bool { return errors.Is(s.failure(), os.ErrDeadlineExceeded) }

// isBroken reports whether the client has broken the stream off, or has not sent what it announced.
func (s *restOfStream) isBroken() bool { return s.failure() != nil && !s.isIdle() }

func (s *restOfStream) failure() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// isCut reports whether the replica got the end of the stream before the client had sent it.
func (s *restOfStream) isCut() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// messages keeps track of where the messages of a gRPC call begin and end.
type messages struct {
	prefix []byte // what has arrived of the prefix of the current message
	left   int64  // bytes of the current message that are still to come after its prefix
}

// isBetween reports whether no message is in progress.
func (m *messages) isBetween() bool { return len(m.prefix) == 0 }

// next consumes bytes of the current message, or of the next one, and returns how many bytes of b belong to it.
func (m *messages) next(b []byte) (n int) {
	if missing := grpcPrefix - len(m.prefix); missing > 0 {
		n = min(missing, len(b))
		m.prefix = append(m.prefix, b[:n]...)
		if n < missing {
			return n
		}
		m.left = int64(binary.BigEndian.Uint32(m.prefix[1:]))
	}
	more := min(m.left, int64(len(b)-n))
	if m.left -= more; m.left == 0 {
		m.prefix = m.prefix[:0]
	}
	return n + int(more)
}

// streams are the streams that the gateway has at present.
type streams struct {
	mu       sync.Mutex
	open     map[*restOfStream]bool
	stopping bool
}

func (s *streams) add(rest *restOfStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		rest.stop()
	}
	if s.open == nil {
		s.open = map[*restOfStream]bool{}
	}
	s.open[rest] = true
}

func (s *streams) remove(rest *restOfStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, rest)
}

// stop ends all streams, including those that come later, as soon as their replicas have answered what they have got.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for rest := range s.open {
		rest.stop()
	}
}
