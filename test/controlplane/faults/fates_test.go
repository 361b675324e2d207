package faults

import (
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forward is the fate of a request without a fault: it is passed on, and so is the response.
func forward(p *proxy, b *bind) {
	status, header, answer := p.send(b)
	for name, values := range header {
		b.w.Header()[name] = values
	}
	b.w.WriteHeader(status)
	_, _ = b.w.Write(answer)
}

// answer responds with a status and does not forward the request.
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

// busy responds with 429 and a Retry-After header, on which client-go retries by itself.
func busy(_ *proxy, b *bind) {
	b.w.Header().Set("Retry-After", "1")
	b.reply(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
}

// drop closes the connection without a response.
func drop(*proxy, *bind) { panic(http.ErrAbortHandler) }

// butThen forwards the request, withholds the response and continues with another fate.
func butThen(then fate) fate {
	return func(p *proxy, b *bind) {
		p.send(b)
		then(p, b)
	}
}

// late responds at once with a gateway timeout, and forwards the request only after the signal.
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

// held forwards the request once the gate opens.
func held(gate <-chan struct{}) fate {
	return func(p *proxy, b *bind) {
		<-gate
		forward(p, b)
	}
}

// after returns a signal that fires after the given time.
func after(d time.Duration) func() <-chan struct{} {
	return func() <-chan struct{} {
		done := make(chan struct{})
		time.AfterFunc(d, func() { close(done) })
		return done
	}
}

// turnstile forwards as many bind requests as it has been told to. The others wait until they may pass or the sender dies.
type turnstile struct{ deviceIDs chan struct{} }

func newTurnstile() *turnstile { return &turnstile{deviceIDs: make(chan struct{}, 10_000)} }

func (t *turnstile) let(n int) {
	for range n {
		t.deviceIDs <- struct{}{}
	}
}

func (t *turnstile) decide(string, int) fate {
	return func(p *proxy, b *bind) {
		select {
		case <-t.deviceIDs:
			forward(p, b)
		case <-b.r.Context().Done():
		}
	}
}
