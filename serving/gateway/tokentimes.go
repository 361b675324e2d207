package gateway

import (
	"net/http"
	"time"

	"github.com/gshare-dev/gshare/serving/openai"
)

// tokenTimes is what is measured of the body of an answer while it is passed on. In a stream with the protocol OpenAI, tokens are events with content; any
// other body counts as one token, which comes with its first byte.
type tokenTimes struct {
	stream      *openai.Stream // nil for other answers
	first, last time.Time      // when the first and the last token came
}

// follow returns the tokens of an answer of which only the header has come.
func follow(r *http.Response, p Protocol) (t tokenTimes) {
	if p == OpenAI && openai.IsStream(r.Header.Get(contentTypeHeader)) && r.Header.Get(contentEncodingHeader) == "" {
		t.stream = &openai.Stream{}
	}
	return t
}

// read takes up the next bytes of the body, and reports whether the first token is among them.
func (t *tokenTimes) read(b []byte) bool {
	if t.stream != nil {
		before := t.stream.Tokens
		if t.stream.Read(b); t.stream.Tokens == before {
			return false
		}
		t.last = time.Now()
	}
	return t.begin()
}

// begin notes that an answer has begun, by its first token or at the latest by its end, and reports whether it had not before.
func (t *tokenTimes) begin() bool {
	if !t.first.IsZero() {
		return false
	}
	t.first = time.Now()
	return true
}

// count returns the number of tokens of a stream, 0 for other answers.
func (t *tokenTimes) count() int {
	if t.stream == nil {
		return 0
	}
	return t.stream.Tokens
}

// mean returns the mean time between the tokens of a stream, 0 if it has less than two.
func (t *tokenTimes) mean() time.Duration {
	if t.count() < 2 {
		return 0
	}
	return t.last.Sub(t.first) / time.Duration(t.count()-1)
}

// done reports whether a stream is complete, even if its body has not ended.
func (t *tokenTimes) done() bool { return t.stream != nil && t.stream.Done }
