package faults

import (
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forward is the fate of a request on a good day.
func forward(p *proxy, b *bind) {
	status, header, answer := p.send(b)
	for name, values := range header {
		b.w.Header()[name] = values
	}
	b.w.WriteHeader(status)
	_, _ = b.w.Write(answer)
}

// answer answers with a status and passes nothing on.
func answer(code int, reason metav1.StatusReason) fate {
	return func(_ *proxy, b *bind) { b.reply(code, reason) }
}

func (b *bind) reply(code int, reason metav1.StatusReason) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "made up by the test's proxy",
	}
	b.w.Header().Set("Content-Type", "application/json")
	b.w.WriteHeader(code)
	_ = json.NewEncoder(b.w).Encode(status)
}

// busy is the answer of a server that asks for patience, in words that client-go obeys by itself.
func busy(_ *proxy, b *bind) {
	b.w.Header().Set("Retry-After", "1")
	b.reply(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
}

// drop closes the connection without an answer.
func drop(*proxy, *bind) { panic(http.ErrAbortHandler) }

// butThen forwards the request, withholds the answer and continues with another fate.
func butThen(then fate) fate {
	return func(p *proxy, b *bind) {
		p.send(b)
		then(p, b)
	}
}

// late answers that the time is up, and passes the request on only when the signal comes.
func late(signal func() <-chan struct{}) fate {
	return func(p *proxy, b *bind) {
		p.mu.Lock()
		p.pending[b.pod]++
		p.mu.Unlock()
		p.late.Add(1)
		go func() {
			<-signal()
			p.send(b)
			p.mu.Lock()
			p.pending[b.pod]--
			p.mu.Unlock()
			p.late.Done()
		}()
		b.reply(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	}
}

// held passes the request on when the gate opens.
func held(gate <-chan struct{}) fate {
	return func(p *proxy, b *bind) {
		<-gate
		forward(p, b)
	}
}

// after returns a signal that comes by itself.
func after(d time.Duration) func() <-chan struct{} {
	return func() <-chan struct{} {
		done := make(chan struct{})
		time.AfterFunc(d, func() { close(done) })
		return done
	}
}

// turnstile lets as many bind requests through as it is told. The others wait until they are let through or their sender dies.
type turnstile struct{ tickets chan struct{} }

func newTurnstile() *turnstile { return &turnstile{tickets: make(chan struct{}, 10_000)} }

func (t *turnstile) let(n int) {
	for range n {
		t.tickets <- struct{}{}
	}
}

func (t *turnstile) decide(string, int) fate {
	return func(p *proxy, b *bind) {
		select {
		case <-t.tickets:
			forward(p, b)
		case <-b.r.Context().Done():
		}
	}
}
