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

	"github.com/gshare-dev/gshare/serving/gateway/http1"
	"github.com/gshare-dev/gshare/serving/gateway/peers"
)

// PeerServer returns the server for other gateways. It serves the requests that they forward, whoever owns the function, and answers the questions to
// Config.Peers. Its Shutdown works as that of Server. It does not check callers, which the other gateway has done, so config must make the handshake
// with anyone else fail. Serve it with ServeTLS; in plain text it refuses everything.
func (g *Gateway) PeerServer(config *tls.Config) *http.Server {
	s := g.Server()
	s.Protocols.SetUnencryptedHTTP2(false)
	s.Protocols.SetHTTP2(true)
	s.TLSConfig = config
	limitUnread(s, maxPeerUnread)
	s.MaxHeaderBytes += 4 << 10 // for what the other gateway adds
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elapsed := r.Header.Get(elapsedHeader)
		switch {
		case r.TLS == nil: // served in plain text by mistake: anyone could have sent it
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

// parseElapsed returns how long another gateway has had a request.
func parseElapsed(text string) time.Duration {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil || us < 0 || us > (24*time.Hour).Microseconds() {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// errPeer is why a request is taken away from a gateway that no longer answers pings; refusePeer is what its client gets if the request cannot be
// sent to another gateway.
var (
	errPeer    = errors.New("the gateway that had the request failed")
	refusePeer = newRefusal(causeGateway, errPeer.Error())
)

// relay is a request that another gateway is to serve.
type relay struct {
	*exchange
	body   *repeatable  // nil for a stream
	stream *streamStart // what the last gateway tried gets of a stream; nil if it is none
	tried  []string     // names of the gateways that were tried
	resent bool         // sent again after a gateway may have begun to serve it
}

// relayed makes the owner of the function answer the request, if that is another gateway. If the owner fails before it has begun to answer, the next
// gateway gets the request, as another replica would if a replica had failed. relayed returns false if this gateway is to serve the request.
func (e *exchange) relayed() bool {
	if e.gateway.peers == nil || e.fromPeer {
		return false
	}
	peer := e.gateway.route(e.function.place.queue()).choose(nil)
	// Invalid requests are refused here, not forwarded.
	if peer == nil || validate(e.request) != nil || e.request.ContentLength > int64(e.function.settings().MaxBody) {
		return false
	}
	r := &relay{exchange: e}
	controller := http.NewResponseController(e.writer)
	whole := func() { _ = controller.SetReadDeadline(time.Time{}) } // as readBody does
	if e.grpc && e.request.URL.Path == streamMethod {
		whole() // streams have timeouts of their own
		e.rest = newRestOfStream(e.request.Body)
		e.gateway.streams.add(e.rest)
		defer e.gateway.streams.remove(e.rest)
	} else {
		from := io.Reader(e.request.Body)
		if e.body != nil {
			from = strings.NewReader("")
		}
		r.body = newRepeatable(e.body, from, &e.gateway.kept, whole)
		if e.request.ContentLength == 0 || e.body != nil {
			r.body.ended = time.Now() // it has arrived completely, whether anybody reads it or not
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
	// This gateway gets what has been read of the body, which stays in memory until the request has been answered.
	e.rest, e.status, e.spent = nil, 0, r.spent()
	if r.body != nil && e.body == nil {
		e.request.Body = r.body.reader()
		context.AfterFunc(e.request.Context(), r.close)
	}
	return false
}

// spent returns how long gateways have had the complete request.
func (r *relay) spent() time.Duration {
	if r.body == nil {
		return 0 // a stream goes to another gateway only before it begins
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

// try sends the request to a gateway and passes the answer on. It returns false if the request may be sent to another gateway.
func (r *relay) try(peer *peers.Peer) bool {
	ctx, cancel := context.WithCancelCause(r.request.Context())
	defer cancel(nil)
	r.cancel = cancel
	given := make(chan struct{}) // closed when the peer has been given up
	var late *time.Timer         // runs from then on, if the request waits for it all the same
	stop := context.AfterFunc(peer.Serving, func() {
		defer close(given)
		if !r.onlyThere() {
			cancel(errPeer)
			return
		}
		late = time.AfterFunc(r.function.settings().Timeout, func() { cancel(errPeer) })
		context.AfterFunc(ctx, func() { late.Stop() })
	})
	defer stop()
	upstream := r.gateway.toPeers
	if r.grpc {
		upstream = r.gateway.toPeersGRPC
	}
	response, err := r.send(upstream, r.outgoing(ctx, peer))
	if err == nil && !stop() {
		if <-given; late != nil {
			late.Stop()
		}
		if context.Cause(ctx) != nil { // the body can no longer be read
			response.Body.Close()
			err = errPeer
		}
	}
	if err == nil && response.StatusCode >= 200 && response.Header.Get(reasonHeader) == reasonUnknown && r.mayRepeat() {
		response.Body.Close() // the peer does not know the function yet
		return false
	}
	if err == nil && !switches(r.request, response) && (response.StatusCode < 200 || response.StatusCode > 999) {
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

// onlyThere reports whether nobody else may serve the request, because a replica may have it: then it waits for a gateway that seems to have ended, which
// may only be slow.
func (r *relay) onlyThere() bool {
	return r.stream == nil && r.hints.wasDispatched() && !http1.IsRepeatable(r.request) && !r.function.settings().Idempotent
}

// mayRepeat reports whether the complete request could be sent once more.
func (r *relay) mayRepeat() bool {
	if r.stream != nil {
		return !r.stream.hasBegun()
	}
	return r.body.isWhole()
}

// fail ends a request that got no answer, or returns false if it may be sent to another gateway. It may if no replica can have it, or if this is its
// first failure and it does no harm if it is served twice, as after the failure of a replica.
func (r *relay) fail(ctx context.Context, err error) bool {
	why := r.why(ctx)
	if r.body != nil && r.body.failure() != nil {
		why = r.bodyRefusal(r.body.failure(), r.function.settings().MaxBody)
	}
	if why != refusePeer {
		r.status, r.reason = why.status, why.reason // not counted here, but by the owner
		r.write(why)
		return true
	}
	unsent := isUnsent(err) || r.stream == nil && !r.hints.wasDispatched()
	harmless := unsent || http1.IsRepeatable(r.request) || r.function.settings().Idempotent
	if r.mayRepeat() && (unsent || harmless && !r.resent) {
		r.resent = r.resent || !unsent
		return false
	}
	if !harmless {
		why = why.servedOnce()
	}
	r.refuse(why)
	r.report() // nobody else can report it: the owner has failed
	return true
}

// why returns why the request got no answer.
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
	copyAnswerHeader(e.writer.Header(), response.Header)
	if response.StatusCode == http.StatusSwitchingProtocols {
		e.switchProtocols(response)
		r.forwarded(ctx, peer)
		return
	}
	if !e.grpc {
		announceTrailer(e.writer.Header(), response.Trailer)
	}
	e.writeStatus(response.StatusCode)
	if r.stream != nil && response.Header.Get(grpcStatus) == "" { // as in forward
		_ = http.NewResponseController(e.writer).Flush() // the client may wait for it before it sends more
	}
	if err := e.copyBody(ctx, response, func() {}); err != nil {
		why := r.why(ctx)
		e.status, e.reason = why.status, why.reason
		if e.grpc {
			why.endGRPC(e.writer)
		}
		if why == refusePeer {
			e.function.measure(func(m *metrics) { m.refused(e.function.name, why.reason) })
			e.report()
		}
		if e.grpc {
			return
		}
		r.close()
		panic(http.ErrAbortHandler) // as in forward
	}
	copyTrailer(e.writer, response)
	if e.grpc {
		e.status = httpStatus(response)
	}
	if e.rest.isCut() && e.status == http.StatusOK {
		e.status, e.reason = refuseStopping.status, refuseStopping.reason
		refuseStopping.endGRPC(e.writer)
	}
	r.forwarded(ctx, peer)
}

// forwarded counts and logs a request that another gateway has answered.
func (r *relay) forwarded(ctx context.Context, peer *peers.Peer) {
	e := r.exchange
	e.function.measure(func(m *metrics) { m.forwarded.WithLabelValues(e.function.name.Namespace, e.function.name.Name).Inc() })
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
		Host: in.Host, Header: onwardHeader(in), Trailer: in.Trailer, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: in.ContentLength, Body: http.NoBody,
	}).WithContext(r.withHints(ctx))
	addForwardedFor(out.Header, in)
	out.Header.Set(elapsedHeader, strconv.FormatInt(time.Since(r.start).Microseconds(), 10))
	out.Header.Set(spentHeader, strconv.FormatInt(r.spent().Microseconds(), 10))
	switch {
	case r.body == nil:
		r.stream = &streamStart{rest: r.rest, cancel: r.cancel}
		out.ContentLength, out.Body = -1, r.stream
	case r.grpc: // the length in the header does not matter
		out.ContentLength, out.Body = -1, r.body.reader()
	case in.ContentLength != 0 || len(in.Trailer) > 0:
		out.Body = r.body.reader()
		if len(in.Trailer) > 0 {
			out.ContentLength = -1
		}
	}
	return out
}

// addForwardedFor adds the address of a request's client to X-Forwarded-For.
func addForwardedFor(header http.Header, in *http.Request) {
	client, _, err := net.SplitHostPort(in.RemoteAddr)
	if err != nil {
		return
	}
	if earlier := header[forwardedForHeader]; len(earlier) > 0 {
		client = strings.Join(earlier, ", ") + ", " + client
	}
	header.Set(forwardedForHeader, client)
}

// streamStart gives one gateway what the client of a stream sends. It reads nothing before the connection to that gateway exists, so that the stream
// can be sent to another one if the connection fails.
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

// hasBegun reports whether anything has been read. If not, nothing will be.
func (s *streamStart) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.begun
}
