package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ServeHTTP passes a request to a replica of the function that its host names, or else the model in its body.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.serve(w, r, "") }

// serve is ServeHTTP. elapsed is what another gateway says from which the request comes; empty if it comes from a client.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, elapsed string) {
	r, token, refused := g.takeToken(r)
	e := &exchange{gateway: g, writer: w, request: r, sender: sender{token: token}, start: time.Now()}
	if elapsed != "" {
		e.fromPeer, e.start = true, e.start.Add(-parseElapsed(elapsed))
		r.Header.Del(elapsedHeader)
	}
	// Also for requests that are refused: the server reads a body before it sends the answer. One of HTTP/2 may be open although it has no length.
	if r.ContentLength != 0 || r.ProtoMajor == 2 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if r.ProtoMajor == 2 {
		e.grpc = isGRPC(r)
		defer func() { // for what the server still has to send then
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		}()
	}
	if refused.status != 0 {
		e.refuseUnnamed(refused)
		return
	}
	host := parseHost(r.Host)
	if e.function = e.callable(host); e.function == nil {
		if isModelList(r) {
			g.writeModels(w, e.mayList())
			return
		}
		defer e.modelBody.release()
		if why := e.findModel(host); why.status != 0 {
			e.refuseUnnamed(why)
			return
		}
	}
	if e.relayed() {
		return
	}
	defer e.report() // also where serve panics to break off an answer
	e.serve()
}

// statusClientGone is what is logged and counted for a request whose client left before the answer.
const statusClientGone = 499

// exchange is one request and its answer.
type exchange struct {
	gateway  *Gateway
	function *function
	writer   http.ResponseWriter
	request  *http.Request
	sender   sender
	body     []byte
	start    time.Time
	deadline *time.Timer             // of the client; nil if it has not said one
	cancel   context.CancelCauseFunc // ends what a replica has of it
	grpc     bool
	fromPeer bool // it comes from another gateway
	// modelBody counts body, after findModel, until the function does or it is not in memory any more. Before, its caller may have to be found out, or
	// another gateway may have the request.
	modelBody reservation
	rest      *restOfStream // of a call whose client sends more messages; nil for others
	outcome
}

// outcome is what is logged and counted of an exchange.
type outcome struct {
	status  int // of the answer
	reason  string
	replica string
	queued  time.Duration
}

// report counts and logs the exchange.
func (e *exchange) report() {
	took := time.Since(e.start)
	e.gateway.metrics.observe(e.function.name, e.status, took, e.queued)
	if !e.gateway.log.Enabled(e.request.Context(), slog.LevelInfo) {
		return
	}
	e.gateway.log.LogAttrs(e.request.Context(), slog.LevelInfo, "request", slog.String("function", e.function.name.String()), slog.Int("status", e.status),
		slog.String("reason", e.reason), slog.String("replica", e.replica), slog.Duration("queued", e.queued), slog.Duration("took", took))
}

func (e *exchange) refuse(why refusal) {
	e.status, e.reason = why.status, why.reason
	e.gateway.metrics.refused(e.function.name, why.reason)
	e.write(why)
}

// write answers with a refusal in the form of the client's protocol.
func (e *exchange) write(why refusal) {
	if e.grpc {
		why.writeGRPC(e.writer)
		return
	}
	openAI := strings.HasPrefix(e.request.URL.Path, "/v1/")
	if e.function != nil {
		openAI = e.function.settings().Protocol == OpenAI
	}
	why.write(e.writer, openAI)
}

// reject refuses a request that has not come whole, or is not valid.
func (e *exchange) reject(why refusal) {
	if why.reason == reasonBrokenOff {
		e.status, e.reason = statusClientGone, why.reason
		e.function.count(func(s *statistics) { s.reject(&s.counts.Gone) })
		e.write(why) // for a client that has closed its side only
		return
	}
	e.function.count(func(s *statistics) { s.reject(&s.counts.Refused) })
	e.refuse(why)
}

func (e *exchange) serve() {
	err := validate(e.request)
	var timeout time.Duration
	if err == nil {
		timeout, err = e.clientTimeout()
	}
	if err != nil {
		e.reject(newRefusal(http.StatusBadRequest, reasonBadRequest, err.Error()))
		return
	}
	settings := e.function.settings()
	if e.grpc && settings.Protocol == OpenAI {
		e.reject(refuseNotGRPC)
		return
	}
	read := e.readBody
	if e.grpc {
		read = e.readMessages
	}
	reserved, refused := read(&e.function.bodies, settings.MaxBody, settings.MaxBytes)
	defer e.function.bodies.release(reserved)
	if e.rest != nil {
		e.gateway.streams.add(e.rest)
		defer e.gateway.streams.remove(e.rest)
	}
	if refused.reason == reasonQueueFull { // it has come whole, and there is no room for it
		e.function.count(func(s *statistics) {
			s.receive(time.Now())
			s.counts.Refused++
		})
		e.refuse(refused)
		return
	}
	var p *part
	var said time.Duration
	if refused.status == 0 {
		p, said, refused = e.locate(settings.MaxBatch)
	}
	if refused.status != 0 {
		e.reject(refused)
		return
	}
	var deadline time.Time
	if timeout = cmp.Or(timeout, said); timeout > 0 {
		deadline = e.start.Add(timeout)
	}
	it, refused := e.function.admit(p, deadline)
	if refused.status != 0 {
		e.refuse(refused)
		return
	}
	ctx, cancel := context.WithCancelCause(e.request.Context())
	defer cancel(nil)
	e.cancel = cancel
	if it.explicit {
		e.deadline = time.AfterFunc(time.Until(it.due), func() { cancel(context.DeadlineExceeded) })
		defer e.deadline.Stop()
	}
	for retried := false; ; retried = true {
		got, ok := e.wait(ctx, it)
		switch {
		case !ok:
			return
		case got.refusal.status != 0:
			e.refuse(got.refusal)
			return
		case got.answer != nil:
			e.pass(it, got.answer)
			return
		case e.forward(ctx, it, got, retried):
			return
		}
	}
}

// validate refuses a request of HTTP/2 with what net/http refuses in one of HTTP/1, and would not send to a replica, or as another request.
func validate(r *http.Request) error {
	switch {
	case r.ProtoMajor != 2:
		return nil
	case !httpguts.ValidHeaderFieldName(r.Method): // both are tokens
		return fmt.Errorf("method %.32q is not valid", r.Method)
	case !httpguts.ValidHostHeader(r.Host):
		return fmt.Errorf("authority %.100q is not valid", r.Host)
	case strings.Contains(r.URL.RawQuery, " "):
		return errors.New("the query has a space")
	}
	return nil
}

// isHeaderTooLong reports whether a request was not sent because the replica has said that it takes no header of this length. net/http exports no
// error for it.
func isHeaderTooLong(err error) bool {
	return strings.Contains(err.Error(), "request header list larger than peer's advertised limit")
}

// wait waits for the turn of an item. It returns false if the client has gone, or its deadline has passed, which it answers.
func (e *exchange) wait(ctx context.Context, it *item) (turn, bool) {
	begin := time.Now()
	select {
	case got := <-it.turn:
		e.queued += max(0, got.began().Sub(begin))
		return got, true
	case <-ctx.Done():
	}
	why, counter := e.loss(ctx)
	if !e.function.cancel(it, counter) { // its turn has come meanwhile
		got := <-it.turn
		if got.replica == nil { // its end is counted
			e.queued += max(0, got.began().Sub(begin))
			return got, true
		}
		e.function.count(func(s *statistics) { s.finish(counter) })
		e.function.failed(got.replica, got.flight, true)
	}
	e.queued += time.Since(begin)
	e.giveUp(why)
	return turn{}, false
}

// loss returns why an exchange gets no whole answer now, and the counter of such ends.
func (e *exchange) loss(ctx context.Context) (refusal, *uint64) {
	counts := &e.function.counts
	switch {
	case e.rest.isIdle():
		return newRefusal(http.StatusGatewayTimeout, reasonIdle, fmt.Sprintf("nothing was sent for %v", idleTimeout)), &counts.Failed
	case e.request.Context().Err() != nil || e.rest.isBroken():
		return newRefusal(statusClientGone, reasonBrokenOff, "the client has broken off the call"), &counts.Gone
	case errors.Is(context.Cause(ctx), errStopping):
		return refuseStopping, &counts.Failed
	case errors.Is(context.Cause(ctx), errHung):
		return refuseHung, &counts.Failed
	case ctx.Err() != nil:
		return newRefusal(http.StatusGatewayTimeout, reasonDeadline, "the deadline has passed"), &counts.Failed
	}
	return newRefusal(http.StatusBadGateway, reasonReplica, "the replica that had the request failed"), &counts.Failed
}

// errHung is why a request is taken from a replica that has not begun to answer it within Function.Timeout, and refuseHung what its client gets.
var (
	errHung    = errors.New("the replica did not answer in time")
	refuseHung = newRefusal(http.StatusGatewayTimeout, reasonDeadline, errHung.Error())
)

// begin sends a request to a replica and returns when the answer begins. Where the client has said no deadline it waits no longer than
// Function.Timeout.
func (e *exchange) begin(upstream http.RoundTripper, request *http.Request) (*http.Response, error) {
	var limit *time.Timer
	if e.deadline == nil {
		limit = time.AfterFunc(e.function.settings().Timeout, func() { e.cancel(errHung) })
	}
	response, err := upstream.RoundTrip(request)
	if limit != nil && !limit.Stop() && err == nil { // too late, and its body cannot be read any more
		response.Body.Close()
		e.cancel(errHung) // if the timer has not done so yet
		return nil, errHung
	}
	return response, err
}

// giveUp ends an exchange that has got no answer.
func (e *exchange) giveUp(why refusal) {
	if why.status != statusClientGone {
		e.refuse(why)
		return
	}
	e.status, e.reason = why.status, why.reason
	if e.rest.isBroken() { // by a client that may still read
		e.write(why)
	}
}

// Headers in which clients say how long they wait, in milliseconds, the first one that is there: that of Envoy, and that of inference
// gateways for the first token of a streamed answer.
var timeoutHeaders = []string{"X-Envoy-Expected-Rq-Timeout-Ms", "X-Slo-Ttft-Ms"}

// clientTimeout returns how long the client will wait for the answer, or 0 if it does not say.
func (e *exchange) clientTimeout() (time.Duration, error) {
	h := e.request.Header
	if e.grpc {
		if d, err := parseGRPCTimeout(h.Get(grpcTimeout)); d != 0 || err != nil {
			return d, err
		}
	}
	for _, name := range timeoutHeaders {
		text := h.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > int64(24*time.Hour/time.Millisecond) {
			return 0, fmt.Errorf("header %s: %.32q is no number of milliseconds from 1 to a day", name, text)
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	return 0, nil
}

// bodyTimeout is how long a client may take to send the body of its request.
const bodyTimeout = 30 * time.Second

// readBody reads the body, unless it has been read already, of at most most bytes, and counts them among all bodies, which may have maxAll. It
// returns the bytes that are to be released. A body for which there is no room is read too, so that it is known whether the request is one.
func (e *exchange) readBody(all *bodies, most, maxAll share.Bytes) (reserved share.Bytes, why refusal) {
	if e.body != nil { // to find the model
		length := share.Bytes(len(e.body))
		switch {
		case length > most:
			return 0, bodyTooLarge(most)
		case !all.reserve(length, maxAll):
			return 0, refuseFull
		}
		e.modelBody.release() // the function counts it
		return length, refusal{}
	}
	length := e.request.ContentLength
	if length == 0 {
		return 0, refusal{}
	}
	if length > int64(most) {
		return 0, bodyTooLarge(most)
	}
	body := arriving{all: all, most: int(most), mostOfAll: maxAll}
	var err error
	if length < 0 {
		err = body.readAll(http.MaxBytesReader(e.writer, e.request.Body, int64(most)))
	} else {
		err = body.read(e.request.Body, int(length))
	}
	if err != nil {
		return body.reserved, e.bodyRefusal(err, most)
	}
	// Otherwise the server would wait without end for the rest before it answers.
	_ = http.NewResponseController(e.writer).SetReadDeadline(time.Time{})
	if body.hasNoRoom {
		return 0, refuseFull
	}
	e.body = body.bytes
	return body.reserved, refusal{}
}

func bodyTooLarge(most share.Bytes) refusal {
	return newRefusal(http.StatusRequestEntityTooLarge, reasonTooLarge, fmt.Sprintf("the body is larger than %d bytes", most))
}

// bodyRefusal returns the refusal of a request whose body could not be read.
func (e *exchange) bodyRefusal(err error, most share.Bytes) refusal {
	var tooMany *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooMany):
		return bodyTooLarge(most)
	case errors.As(err, &network) && network.Timeout():
		return newRefusal(http.StatusRequestTimeout, reasonBadRequest, "the body did not arrive in time")
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), e.request.ProtoMajor == 2: // whose errors have no types
		return newRefusal(http.StatusBadRequest, reasonBrokenOff, "the body is shorter than it should be")
	}
	return newRefusal(http.StatusBadRequest, reasonBadRequest, "the body is not valid")
}

// forward sends the request to a replica and passes its answer on. It returns false if the replica has failed and the request waits again.
func (e *exchange) forward(ctx context.Context, it *item, t turn, retried bool) bool {
	r := t.replica
	e.replica = r.ID
	upstream := e.gateway.upstream
	if e.grpc {
		upstream = e.gateway.upstreamGRPC
	}
	if e.rest != nil {
		t.flight.stream = true
		e.rest.start(e.cancel)
		defer e.rest.Close()
	}
	response, err := e.begin(upstream, e.outgoing(ctx, it, r))
	if err == nil && (response.StatusCode < 200 || response.StatusCode > 999) { // net/http takes it, and cannot pass it on
		response.Body.Close()
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err != nil {
		if why, counter := e.loss(ctx); why.reason != reasonReplica {
			e.function.count(func(s *statistics) { s.finish(counter) })
			// The replica may wait for the client of a stream, not the other way round.
			e.function.failed(r, t.flight, why != refuseHung || e.rest != nil)
			e.giveUp(why)
			return true
		}
		if isHeaderTooLong(err) {
			e.function.count(func(s *statistics) { s.finish(&s.counts.Refused) })
			e.function.failed(r, t.flight, true)
			e.refuse(newRefusal(http.StatusRequestHeaderFieldsTooLarge, reasonBadRequest, "the header is longer than the replica takes"))
			return true
		}
		unknown := e.grpc && !spoken(e.function)
		e.function.failed(r, t.flight, unknown)
		if !retried && !unknown && e.rest == nil && e.function.retry(1, it) {
			return false
		}
		e.function.count(func(s *statistics) { s.finish(&s.counts.Failed) })
		e.refuse(newRefusal(http.StatusBadGateway, reasonReplica, "the replica that had the request failed"))
		return true
	}
	defer response.Body.Close()
	first := time.Now()
	if e.deadline != nil && e.function.settings().Protocol == OpenAI {
		e.deadline.Stop() // it was for the first byte
	}
	e.writeHeader(it, response.StatusCode, response.Header)
	if e.rest != nil && response.Header.Get(grpcStatus) == "" { // else it is all: a flush would make a trailer missing
		_ = http.NewResponseController(e.writer).Flush() // its client may wait for it before it sends more
	}
	if err := e.copyBody(response); err != nil {
		why, counter := e.loss(ctx)
		e.function.count(func(s *statistics) { s.finish(counter) })
		e.function.failed(r, t.flight, why.reason != reasonReplica)
		e.status, e.reason = why.status, why.reason
		if e.grpc {
			why.endGRPC(e.writer)
		}
		if e.grpc || e.status == statusClientGone {
			return true
		}
		panic(http.ErrAbortHandler) // closes the connection, so that the client does not take a part for the whole
	}
	if e.grpc {
		e.function.count(func(s *statistics) { s.speaksGRPC = true })
		copyTrailer(e.writer, response)
		e.status = httpStatus(response)
	}
	e.function.done(r, t.flight, first, e.status < 500, it)
	if e.rest.isCut() && e.status == http.StatusOK {
		e.status, e.reason = refuseStopping.status, refuseStopping.reason
		refuseStopping.endGRPC(e.writer)
	}
	return true
}

// writeHeader begins the answer.
func (e *exchange) writeHeader(it *item, code int, from http.Header) {
	header := e.writer.Header()
	copyHeader(header, from)
	header.Del(reasonHeader) // of another gateway that the server asked, not of this one: it has not refused the request
	header.Set("Server-Timing", fmt.Sprintf("queue;dur=%.1f", float64(e.queued)/float64(time.Millisecond)))
	header.Set("X-Gshare-Cold-Start", map[bool]string{true: "cold", false: "warm"}[it.cold])
	e.writer.WriteHeader(code)
	e.status = code
}

// outgoing returns the request to send to a replica.
func (e *exchange) outgoing(ctx context.Context, it *item, r *replica) *http.Request {
	in := e.request
	out := (&http.Request{
		Method: in.Method, URL: &url.URL{Scheme: "http", Host: r.Address, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery},
		Host: in.Host, Header: make(http.Header, len(in.Header)+1), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(e.body)), Body: http.NoBody,
	}).WithContext(ctx)
	copyHeader(out.Header, in.Header)
	if e.grpc {
		out.Header.Set("Te", "trailers") // servers may insist on it
	}
	if e.rest != nil {
		out.ContentLength, out.Body = -1, struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(e.body), e.rest), e.rest}
	} else if len(e.body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(e.body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(e.body)), nil }
	}
	if !e.fromPeer { // which has done so
		addForwardedFor(out.Header, in)
	}
	if it.explicit { // less the time that has passed
		left := max(1, time.Until(it.due).Milliseconds())
		if e.grpc {
			out.Header.Set(grpcTimeout, strconv.FormatInt(min(left, maxTimeout.Milliseconds()), 10)+"m") // of up to 8 digits
		}
		for _, name := range timeoutHeaders {
			if out.Header.Get(name) != "" {
				out.Header.Set(name, strconv.FormatInt(left, 10))
			}
		}
	}
	return out
}

// copyHeader copies the fields of a header but those that are for one connection only.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		to[name] = values
	}
	for _, list := range from["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		delete(to, name)
	}
}

// copyBody passes the body of an answer on. What is streamed is flushed as it comes.
func (e *exchange) copyBody(response *http.Response) error {
	return e.writeBody(response.ContentLength, func(w io.Writer) error {
		streamed := response.ContentLength < 0
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		controller := http.NewResponseController(e.writer)
		for {
			n, err := response.Body.Read(*buffer)
			if n > 0 {
				if _, err := w.Write((*buffer)[:n]); err != nil {
					return err
				}
				if e.rest != nil {
					e.rest.extend()
				}
				if streamed {
					_ = controller.Flush() // fails as the next write does
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}
