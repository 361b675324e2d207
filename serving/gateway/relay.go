package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway/peers"
)

// elapsedHeader is a header of all requests that a gateway forwards to another one, and of no others between them: for how many microseconds the first
// one has had it. A deadline that a client says counts from then on.
const elapsedHeader = "X-Gshare-Elapsed-Us"

// spentHeader is a header as elapsedHeader: for how many microseconds the first gateway has had the whole request. Objectives of functions count from
// then on. None if it has not come whole.
const spentHeader = "X-Gshare-Spent-Us"

// PeerServer returns the server for other gateways: what they forward is served here, whoever owns the function, and what Config.Peers answers. Its
// Shutdown is that of Server. It does not check callers, which the other gateway has done: config is to let the handshake fail with all others. Serve
// it with ServeTLS; in plain text it refuses everything.
func (g *Gateway) PeerServer(config *tls.Config) *http.Server {
	s := g.Server()
	s.Protocols.SetUnencryptedHTTP2(false)
	s.Protocols.SetHTTP2(true)
	s.TLSConfig = config
	s.MaxHeaderBytes += 4 << 10 // for what the other gateway adds
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elapsed := r.Header.Get(elapsedHeader)
		switch {
		case r.TLS == nil: // served in plain text by mistake: anybody could have sent it
			http.Error(w, "gateways connect over TLS", http.StatusForbidden)
		case elapsed != "":
			g.serve(w, r, elapsed)
		case g.peers != nil:
			g.peers.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
	return s
}

// parseElapsed returns for how long another gateway has had a request.
func parseElapsed(text string) time.Duration {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil || us < 0 || us > (24*time.Hour).Microseconds() {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// errPeer is why a request is taken from a gateway that does not answer pings any more, and refusePeer what its client gets if it cannot be sent
// to another one.
var (
	errPeer    = errors.New("the gateway that had the request failed")
	refusePeer = newRefusal(http.StatusBadGateway, reasonGateway, errPeer.Error())
)

// relay is a request that another gateway serves.
type relay struct {
	*exchange
	body   *repeatable  // nil for a stream
	stream *streamStart // of the last gateway that was tried; nil if it is no stream
	tried  []string     // gateways
	resent bool         // after a gateway may have begun with it
}

// relayed lets the owner of the function answer the request, if that is another gateway. If that fails before it has begun to answer, the next
// one gets the request, as it would if a replica had failed. relayed returns false if this gateway is to serve it.
func (e *exchange) relayed() bool {
	if e.gateway.peers == nil || e.fromPeer {
		return false
	}
	peer := e.gateway.route(e.function.place.queue()).choose(nil)
	// What is not valid is refused here.
	if peer == nil || validate(e.request) != nil || e.request.ContentLength > int64(e.function.settings().MaxBody) {
		return false
	}
	r := &relay{exchange: e}
	controller := http.NewResponseController(e.writer)
	whole := func() { _ = controller.SetReadDeadline(time.Time{}) } // as after readBody
	if e.grpc && e.request.URL.Path == streamMethod {
		whole() // the stream has bounds of its own
		e.rest = newRestOfStream(e.request.Body, controller)
		e.gateway.streams.add(e.rest)
		defer e.gateway.streams.remove(e.rest)
	} else {
		from := io.Reader(e.request.Body)
		if e.body != nil {
			from = strings.NewReader("")
		}
		r.body = newRepeatable(e.body, from, &e.gateway.kept, whole)
		if e.request.ContentLength == 0 || e.body != nil {
			r.body.ended = time.Now() // it is whole, whether anybody reads it or not
		}
	}
	for peer != nil {
		if r.try(peer) {
			r.close()
			return true
		}
		r.tried = append(r.tried, peer.Name)
		peer = e.gateway.route(e.function.place.queue()).choose(r.tried)
	}
	// What has been read of the body is given to this gateway: it is in the memory until the request has been answered.
	e.rest, e.status, e.spent = nil, 0, r.spent()
	if r.body != nil && e.body == nil {
		e.request.Body = r.body.reader()
		context.AfterFunc(e.request.Context(), r.close)
	}
	return false
}

// spent returns for how long the whole request has been with gateways.
func (r *relay) spent() time.Duration {
	if r.body == nil {
		return 0 // a stream is sent to another one only before it begins
	}
	return r.body.sinceEnd()
}

// close ends the use of the client's connection.
func (r *relay) close() {
	if r.body != nil {
		r.body.close()
		return
	}
	_ = r.rest.Close() // never fails
}

// try sends the request to a gateway and passes its answer on. It returns false if the request may be sent to another one.
func (r *relay) try(peer *peers.Peer) bool {
	ctx, cancel := context.WithCancelCause(r.request.Context())
	defer cancel(nil)
	r.cancel = cancel
	stop := context.AfterFunc(peer.Serving, func() { cancel(errPeer) })
	defer stop()
	upstream := r.gateway.toPeers
	if r.grpc {
		upstream = r.gateway.toPeersGRPC
	}
	response, err := upstream.RoundTrip(r.outgoing(ctx, peer))
	if err == nil && !stop() { // too late, and its body cannot be read any more
		response.Body.Close()
		err = errPeer
	}
	if err == nil && response.StatusCode >= 200 && response.Header.Get(reasonHeader) == reasonUnknown && r.mayRepeat() {
		response.Body.Close() // it has not learnt of the function yet
		return false
	}
	if err == nil && (response.StatusCode < 200 || response.StatusCode > 999) {
		response.Body.Close()
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err == nil {
		defer response.Body.Close()
		r.pass(ctx, peer, response)
		return true
	}
	return r.fail(ctx, err)
}

// mayRepeat reports whether the whole request could be sent again.
func (r *relay) mayRepeat() bool {
	if r.stream != nil {
		return !r.stream.hasBegun()
	}
	return r.body.isWhole()
}

// fail ends a request that got no answer, or returns false if it may be sent to another gateway. It may if it has not been sent, or for the first
// time: as after the failure of a replica, requests are taken for such that may be served twice.
func (r *relay) fail(ctx context.Context, err error) bool {
	why := r.why(ctx)
	if r.body != nil && r.body.failure() != nil {
		why = r.bodyRefusal(r.body.failure(), r.function.settings().MaxBody)
	}
	if why != refusePeer {
		r.status, r.reason = why.status, why.reason // which the owner has counted
		if why.status != statusClientGone || r.request.Context().Err() == nil {
			r.write(why)
		}
		return true
	}
	var network *net.OpError
	unsent := errors.As(err, &network) && network.Op == "dial"
	if r.mayRepeat() && (unsent || !r.resent) {
		r.resent = r.resent || !unsent
		return false
	}
	r.refuse(why)
	r.report() // nobody else can: its owner has failed
	return true
}

// why returns why the request has got no answer.
func (r *relay) why(ctx context.Context) refusal {
	if errors.Is(context.Cause(ctx), errPeer) && r.request.Context().Err() == nil {
		return refusePeer
	}
	why, _ := r.loss(ctx)
	if why.reason == reasonReplica {
		return refusePeer
	}
	return why
}

// pass passes the answer of a gateway on.
func (r *relay) pass(ctx context.Context, peer *peers.Peer, response *http.Response) {
	e := r.exchange
	copyHeader(e.writer.Header(), response.Header)
	e.writer.WriteHeader(response.StatusCode)
	e.status = response.StatusCode
	if r.stream != nil && response.Header.Get(grpcStatus) == "" { // else it is all: a flush would make a trailer missing
		_ = http.NewResponseController(e.writer).Flush() // its client may wait for it before it sends more
	}
	if err := e.copyBody(response); err != nil {
		why := r.why(ctx)
		e.status, e.reason = why.status, why.reason
		if e.grpc {
			why.endGRPC(e.writer)
		}
		if why == refusePeer {
			e.gateway.metrics.refused(e.function.name, why.reason)
			e.report()
		}
		if e.grpc || e.status == statusClientGone {
			return
		}
		r.close()
		panic(http.ErrAbortHandler) // as in forward
	}
	if e.grpc {
		copyTrailer(e.writer, response)
		e.status = httpStatus(response)
	}
	if e.rest.isCut() && e.status == http.StatusOK {
		e.status, e.reason = refuseStopping.status, refuseStopping.reason
		refuseStopping.endGRPC(e.writer)
	}
	e.gateway.metrics.forwarded.WithLabelValues(e.function.name.Namespace, e.function.name.Name).Inc()
	if e.gateway.log.Enabled(ctx, slog.LevelInfo) {
		e.gateway.log.LogAttrs(ctx, slog.LevelInfo, "forwarded", slog.String("function", e.function.name.String()), slog.Int("status", e.status),
			slog.String("gateway", peer.Name), slog.Duration("took", time.Since(e.start)))
	}
}

// outgoing returns the request to send to a gateway.
func (r *relay) outgoing(ctx context.Context, peer *peers.Peer) *http.Request {
	in := r.request
	out := (&http.Request{
		Method: in.Method, URL: &url.URL{Scheme: "https", Host: peer.Address, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery},
		Host: in.Host, Header: make(http.Header, len(in.Header)+3), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: in.ContentLength, Body: http.NoBody,
	}).WithContext(ctx)
	copyHeader(out.Header, in.Header)
	if r.grpc {
		out.Header.Set("Te", "trailers")
	}
	addForwardedFor(out.Header, in)
	out.Header.Set(elapsedHeader, strconv.FormatInt(time.Since(r.start).Microseconds(), 10))
	out.Header.Set(spentHeader, strconv.FormatInt(r.spent().Microseconds(), 10))
	switch {
	case r.body == nil:
		r.stream = &streamStart{rest: r.rest, cancel: r.cancel}
		out.ContentLength, out.Body = -1, r.stream
	case r.grpc: // whatever length it says: what comes counts
		out.ContentLength, out.Body = -1, r.body.reader()
	case in.ContentLength != 0:
		out.Body = r.body.reader()
	}
	return out
}

// addForwardedFor adds the client of a request to a header.
func addForwardedFor(header http.Header, in *http.Request) {
	client, _, err := net.SplitHostPort(in.RemoteAddr)
	if err != nil {
		return
	}
	if earlier := header["X-Forwarded-For"]; len(earlier) > 0 {
		client = strings.Join(earlier, ", ") + ", " + client
	}
	header.Set("X-Forwarded-For", client)
}

// streamStart is what the client of a stream sends, for one gateway. It is not touched before the connection to that exists, so that it can be sent
// to another one if that fails.
type streamStart struct {
	rest   *restOfStream
	cancel context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	begun  bool
	closed bool
}

func (s *streamStart) Read(p []byte) (int, error) {
	if !s.start() {
		return 0, errBodyClosed
	}
	return s.rest.Read(p)
}

func (s *streamStart) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && !s.closed {
		s.begun = true
		s.rest.start(s.cancel)
	}
	return s.begun
}

func (s *streamStart) Close() error {
	if s.hasBegun() {
		return s.rest.Close()
	}
	return nil
}

// hasBegun reports whether something was read. If not, nothing will be.
func (s *streamStart) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.begun
}
