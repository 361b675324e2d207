package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// isHeaderTooLong reports whether a request was not sent because the replica has announced that it accepts no header of this length. net/http exports
// no error for this.
func isHeaderTooLong(err error) bool {
	return strings.Contains(err.Error(), "request header list larger than peer's advertised limit")
}

// begin sends a request to a replica and returns when the header of the answer comes. If the client has given no deadline, it waits for
// Function.Timeout at most. With the protocol OpenAI the limit stays until the answer has content: many servers send the header long before.
func (e *exchange) begin(upstream http.RoundTripper, request *http.Request) (*http.Response, error) {
	settings := e.function.settings()
	if e.deadline == nil {
		e.limit = time.AfterFunc(settings.Timeout, func() { e.cancel(errHung) })
	}
	response, err := e.send(upstream, request)
	if e.limit == nil || err == nil && settings.Protocol == OpenAI {
		return response, err
	}
	if !e.limit.Stop() && err == nil { // the timer fired first, so the body can no longer be read
		response.Body.Close()
		e.cancel(errHung) // if the timer has not done so yet
		return nil, errHung
	}
	return response, err
}

// forward sends the request to a replica and passes the answer on. It returns false if the replica has failed and the request waits for another turn.
// tries counts the turns so far, with this one.
func (e *exchange) forward(ctx context.Context, it *item, t turn, tries int) bool {
	r := t.replica
	queue := it.queue.Load() // does not change while a replica has the request
	e.replica = r.ID
	upstream := e.gateway.upstream
	if e.grpc {
		upstream = e.gateway.upstreamGRPC
	}
	if e.rest != nil {
		e.rest.start(e.cancel)
		defer e.rest.Close()
	}
	e.tellDispatched()
	response, err := e.begin(upstream, e.outgoing(ctx, it, r))
	if e.limit != nil {
		defer e.limit.Stop()
	}
	switched := err == nil && switches(e.request, response)
	if err == nil && !switched && (response.StatusCode < 200 || response.StatusCode > 999) { // net/http accepts such a status but cannot pass it on
		response.Body.Close()
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err != nil {
		if why, counter := e.loss(ctx); why.reason != reasonReplica {
			e.function.count(func(s *statistics) { s.finish(counter) })
			// In a stream the replica may have been waiting for the client, so it is not to blame.
			queue.failed(r, t.flight, map[bool]blame{true: down}[why == refuseHung && e.rest == nil])
			e.giveUp(why)
			return true
		}
		if isHeaderTooLong(err) {
			e.function.count(func(s *statistics) { s.finish(&s.counts.Refused) })
			queue.failed(r, t.flight, none)
			e.refuse(newRefusal(causeLongHeader, "the header is longer than the replica takes"))
			return true
		}
		unknown := e.grpc && !spoken(queue)
		why := blameFor(err)
		if unknown {
			why = none
		}
		queue.failed(r, t.flight, why)
		may := it.mayRepeat(err)
		// A replica that breaks off may have ended, which the next try only finds out.
		if (tries == 1 || tries == 2 && why == down) && !unknown && e.rest == nil && may && queue.retry(1, it) {
			return false
		}
		e.function.count(func(s *statistics) { s.finish(&s.counts.Failed) })
		e.refuse(replicaFailed(may || e.rest != nil || unknown))
		return true
	}
	defer response.Body.Close()
	openAI := e.function.settings().Protocol == OpenAI
	inTime := func() { // the timers were only for the beginning
		for _, timer := range []*time.Timer{e.deadline, e.limit} {
			if timer != nil {
				timer.Stop()
			}
		}
	}
	begun := func() {
		if !openAI {
			return
		}
		inTime()
		if e.status < 500 {
			queue.begun(r, t.flight)
		}
	}
	e.prepareHeader(it, response.Header)
	if switched {
		inTime()
		e.tokens.begin()
		e.switchProtocols(response)
		queue.done(r, t.flight, e.tokens, true, it)
		return true
	}
	if !e.grpc {
		announceTrailer(e.writer.Header(), response.Trailer)
	}
	e.writeStatus(response.StatusCode)
	if e.rest != nil && response.Header.Get(grpcStatus) == "" { // else the header is the whole answer, and after a flush its trailer would be missing
		_ = http.NewResponseController(e.writer).Flush() // the client may wait for it before it sends more
	}
	if err := e.copyBody(ctx, response, begun); err != nil {
		why, counter := e.loss(ctx)
		e.function.count(func(s *statistics) { s.finish(counter) })
		switch {
		case why == refuseHung:
			queue.failed(r, t.flight, down)
		case why.reason == reasonReplica:
			queue.failed(r, t.flight, broken)
		default:
			queue.failed(r, t.flight, none)
		}
		e.status, e.reason = why.status, why.reason
		if e.grpc {
			why.endGRPC(e.writer)
		}
		if e.grpc {
			return true
		}
		panic(http.ErrAbortHandler) // closes the connection, so that the client does not take a part for the whole answer
	}
	copyTrailer(e.writer, response)
	if e.grpc {
		queue.speak()
		e.status = httpStatus(response)
	}
	queue.done(r, t.flight, e.tokens, e.status < 500, it)
	if e.rest.isCut() && e.status == http.StatusOK {
		e.status, e.reason = refuseStopping.status, refuseStopping.reason
		refuseStopping.endGRPC(e.writer)
	}
	return true
}

// prepareHeader sets the header of the answer.
func (e *exchange) prepareHeader(it *item, from http.Header) {
	header := e.writer.Header()
	copyAnswerHeader(header, from)
	header.Del(reasonHeader) // the replica may have got it from another gateway that it called; this one has not refused the request
	header.Add("Server-Timing", fmt.Sprintf("queue;dur=%.1f", float64(e.queued)/float64(time.Millisecond)))
	header.Set("X-Gshare-Cold-Start", map[bool]string{true: "cold", false: "warm"}[it.cold])
}

// writeStatus begins the answer, whose header has been set.
func (e *exchange) writeStatus(code int) {
	e.writer.WriteHeader(code)
	e.status = code
}

// outgoing returns the request to send to a replica.
func (e *exchange) outgoing(ctx context.Context, it *item, r *replica) *http.Request {
	in := e.request
	out := (&http.Request{
		Method: in.Method, URL: &url.URL{Scheme: "http", Host: r.Address, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery},
		Host: in.Host, Header: onwardHeader(in), Trailer: onwardTrailer(in.Trailer), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(e.body)), Body: http.NoBody,
	}).WithContext(e.withHints(ctx))
	if e.rest != nil {
		out.ContentLength, out.Body = -1, struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(e.body), e.rest), e.rest}
	} else if len(e.body) > 0 || len(out.Trailer) > 0 {
		if len(out.Trailer) > 0 {
			out.ContentLength = -1 // HTTP/1.1 has trailers only then
		}
		out.Body = io.NopCloser(bytes.NewReader(e.body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(e.body)), nil }
	}
	if !e.fromPeer { // another gateway has done so
		addForwardedFor(out.Header, in)
	}
	if it.explicit() { // the client's timeout, less the time that has passed
		left := max(1, time.Until(it.due).Milliseconds())
		if e.grpc {
			out.Header.Set(grpcTimeoutHeader, strconv.FormatInt(min(left, maxTimeout.Milliseconds()), 10)+"m") // of up to 8 digits
		}
		for _, name := range timeoutHeaders {
			if out.Header.Get(name) != "" {
				out.Header.Set(name, strconv.FormatInt(left, 10))
			}
		}
	}
	return out
}

// copyBody passes the body of an answer on, and calls begun when it has content or ends. A body of unknown length is flushed as it comes. An error after
// the end of a stream of tokens is none: clients leave then.
func (e *exchange) copyBody(ctx context.Context, response *http.Response, begun func()) error {
	e.tokens = follow(response, e.function.settings().Protocol)
	complete := false // the client has got the whole stream
	if e.grpc {       // net/http does not notice the end of ctx while it waits until it may send more of the request
		defer context.AfterFunc(ctx, func() { _ = response.Body.Close() })()
	}
	err := e.writeBody(response.ContentLength, func(w io.Writer) error {
		streamed := response.ContentLength < 0
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		controller := http.NewResponseController(e.writer)
		for {
			n, err := response.Body.Read(*buffer)
			if n > 0 {
				if e.tokens.read((*buffer)[:n]) {
					begun()
				}
				if _, err := w.Write((*buffer)[:n]); err != nil {
					return err
				}
				if e.rest != nil {
					e.rest.extend()
				}
				if streamed {
					if err := controller.Flush(); err != nil {
						return err
					}
				}
				complete = e.tokens.done()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil && !complete {
		return err
	}
	if e.tokens.begin() {
		begun()
	}
	return nil
}
