package gateway

import (
	"io"
	"net/http"
	"time"
)

// writeTimeout is how long a client may take to read a piece of an answer. Without a bound it could keep a credit from others without end.
const writeTimeout = 30 * time.Second

// piece is how many bytes a client has to read within writeTimeout.
const piece = 32 << 10

// buffered is the length of an answer that net/http takes whether the client reads it or not.
const buffered = 2 << 10

// writeBody lets write write a body of a length, -1 if it is not known, to the client, and fails if the client does not read it.
func (e *exchange) writeBody(length int64, write func(io.Writer) error) error {
	if length >= 0 && length <= buffered {
		return write(e.writer)
	}
	w := &boundedWriter{e.writer, http.NewResponseController(e.writer), e.request.ProtoMajor == 2}
	err := write(w)
	if err == nil && length >= 0 {
		err = w.controller.Flush() // while there is a deadline
	}
	_ = w.controller.SetWriteDeadline(time.Time{}) // the connection may be used again
	return err
}

// boundedWriter writes to a client, which has to read each piece in time.
type boundedWriter struct {
	client     io.Writer
	controller *http.ResponseController
	http2      bool
}

func (w *boundedWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // every server of net/http supports it
		var more int
		more, err = w.client.Write(b[n:min(n+piece, len(b))])
		n += more
	}
	if w.http2 && err == nil { // where a deadline ends the stream also when nothing is written
		err = w.controller.Flush()
		_ = w.controller.SetWriteDeadline(time.Time{})
	}
	return n, err
}
