package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/serving/oip"
)

// part is an inference request that may be sent together with others of the same group as one request.
type part struct {
	request *oip.Request
	group   string
	url     *url.URL
	header  http.Header // headers of the batch if this part is its first
	limit   int         // most parts of a batch that contains this one; 0: no limit
	grpc    bool
}

// locate finds the tensors of an inference request that may be batched, and refuses it if it is malformed. It leaves other requests as they are and
// returns no part for them. timeout is how long the client waits according to the body, 0 if it does not say.
func (e *exchange) locate(maxBatch int) (p *part, timeout time.Duration, why refusal) {
	in := e.request
	if e.grpc {
		return e.locateCall(maxBatch)
	}
	if maxBatch == 1 || in.Method != http.MethodPost || !strings.HasPrefix(in.URL.Path, "/v2/models/") || !strings.HasSuffix(in.URL.Path, "/infer") ||
		slices.ContainsFunc(aloneHeaders, func(name string) bool { return len(in.Header[name]) > 0 }) {
		return nil, 0, refusal{}
	}
	length, err := oip.JSONLength(in.Header, len(e.body))
	if err != nil {
		return nil, 0, newRefusal(causeBadRequest, err.Error())
	}
	request, err := oip.ParseRequest(e.body, length)
	if err != nil {
		return nil, 0, newRefusal(causeBadRequest, err.Error())
	}
	return newPart(in, request)
}

// newPart returns the part of a request whose tensors have been located, or nil if it has to be sent alone.
func newPart(in *http.Request, request *oip.Request) (p *part, timeout time.Duration, why refusal) {
	if request.Alone() != nil {
		return nil, request.Timeout, refusal{}
	}
	p = &part{request: request, url: in.URL, header: http.Header{}, grpc: isGRPC(in)}
	group := []string{in.URL.EscapedPath(), in.URL.RawQuery, request.Signature()}
	for _, name := range batchHeaders {
		if values := in.Header[name]; len(values) > 0 {
			p.header[name] = values
		}
		group = append(group, strings.Join(in.Header[name], "\n"))
	}
	p.group = fmt.Sprintf("%q", group)
	return p, request.Timeout, refusal{}
}

// together returns the items that can be sent as one batch with the first item, and the others. A batch has at most maxBatch rows, unless it is a
// single request with more.
func together(items []*item, maxBatch int) (chosen, others []*item) {
	first := items[0]
	chosen = items[:1:1]
	if first.part == nil {
		return chosen, items[1:]
	}
	rows, limit := first.part.request.Rows, first.part.limit
	for _, it := range items[1:] {
		p := it.part
		if p == nil || p.group != first.part.group || rows+p.request.Rows > int64(maxBatch) || limit > 0 && len(chosen) >= limit ||
			p.limit > 0 && len(chosen) >= p.limit {
			others = append(others, it)
			continue
		}
		rows += p.request.Rows
		chosen = append(chosen, it)
		if p.limit > 0 && (limit == 0 || p.limit < limit) {
			limit = p.limit
		}
	}
	return chosen, others
}

// batch is several requests that are sent as one.
type batch struct {
	gateway  *Gateway
	function *function // whose queue the items were in
	replica  *replica
	flight   *flight
	items    []*item
	stop     context.CancelFunc
	limits   []*time.Timer // end the wait of items with shorter timeouts than the batch
	clients  int           // how many still wait for the answer; guarded by the function's mutex
	room     *room         // of the answer
}

// leave notes that one client less waits, and ends the batch after the last one. The function's mutex is held.
func (b *batch) leave() {
	if b.clients--; b.clients == 0 {
		b.stop()
	}
}

// giveUp ends the wait of an item whose function's timeout has passed. The batch goes on for the items with longer timeouts.
func (b *batch) giveUp(it *item) {
	b.function.mu.Lock()
	defer b.function.mu.Unlock()
	if it.batch != b || it.gone {
		return
	}
	it.batch, it.gone = nil, true
	it.of.count(func(s *statistics) { s.finish(&s.counts.Failed) })
	it.turn <- turn{refusal: refuseHung}
	b.leave()
}

// answered is an item's part of the answer to a batch.
type answered struct {
	replica string
	began   time.Time // when the batch was sent
	status  int
	header  http.Header
	message *oip.Message
	room    *room
}

// sendBatch sends items from the queue of a function as one request. The function's mutex is held.
func sendBatch(f *function, r *replica, flown *flight, items []*item) {
	timeout := items[0].timeout
	for _, it := range items { // possibly of several functions: a short timeout must not end the batch for the others
		timeout = max(timeout, it.timeout)
	}
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	b := &batch{gateway: f.gateway, function: f, replica: r, flight: flown, items: items, stop: stop, clients: len(items)}
	for _, it := range items {
		it.batch = b
		if it.timeout < timeout {
			b.limits = append(b.limits, time.AfterFunc(it.timeout, func() { b.giveUp(it) }))
		}
	}
	f.measure(func(m *metrics) { m.batched(f.name, len(items)) })
	maxAnswer := int64(f.config.MaxBytes)
	go func() {
		defer stop()
		b.run(ctx, maxAnswer)
		for _, limit := range b.limits {
			limit.Stop()
		}
	}()
}

// run sends the batch and gives each item its part of the answer.
func (b *batch) run(ctx context.Context, maxAnswer int64) {
	requests := make([]*oip.Request, len(b.items))
	for i, it := range b.items {
		requests[i] = it.part.request
	}
	merged, errs := oip.Merge(requests)
	b.room = &room{reservation: reservation{of: &b.function.answers}}
	b.room.users.Store(1)
	defer b.room.release()
	send := b.exchange
	if b.items[0].part.grpc {
		send = b.call
	}
	response, body, err := send(ctx, &merged.Message, maxAnswer)
	switch {
	case ctx.Err() != nil: // all clients have gone, or it has taken too long
		b.function.failed(b.replica, b.flight, map[bool]blame{true: down}[!errors.Is(ctx.Err(), context.Canceled)])
		b.refuse(refuseHung, b.items)
	case err != nil:
		if isHeaderTooLong(err) { // sent one by one, each gets its own refusal
			b.function.failed(b.replica, b.flight, none)
			b.divide(1, replicaFailed(true))
			return
		}
		if errors.Is(err, errOversized) { // smaller batches have smaller answers
			b.function.failed(b.replica, b.flight, none)
			b.divide(b.half(), newRefusal(causeReplica, err.Error()))
			return
		}
		b.function.failed(b.replica, b.flight, blameFor(err))
		b.refuse(replicaFailed(false), slices.DeleteFunc(slices.Clone(b.items), func(it *item) bool { return it.mayRepeat(err) }))
		b.repeat(replicaFailed(true))
	case response.StatusCode != http.StatusOK:
		b.function.done(b.replica, b.flight, tokenTimes{}, false)
		why := newRefusal(causeReplica, fmt.Sprintf("the replica answered a batch with status %d", response.StatusCode))
		if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
			b.repeat(why)
			return
		}
		b.divide(b.half(), why)
	default:
		b.split(merged, errs, response, body)
	}
}

// exchange sends a message and returns the answer with its body.
func (b *batch) exchange(ctx context.Context, m *oip.Message, maxAnswer int64) (*http.Response, []byte, error) {
	request := b.request(ctx, m)
	if m.JSONLength < m.Len() {
		request.Header.Set(oip.HeaderName, strconv.Itoa(m.JSONLength))
	}
	return roundTrip(b.gateway.upstream, request, maxAnswer, &b.room.reservation)
}

// request returns the request that sends a message.
func (b *batch) request(ctx context.Context, m *oip.Message) *http.Request {
	first := b.items[0].part
	return (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: b.replica.Address, Path: first.url.Path, RawPath: first.url.RawPath, RawQuery: first.url.RawQuery},
		Host: b.function.name.Name + "." + b.function.name.Namespace, Header: first.header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(m.Len()), Body: io.NopCloser(m.Reader()),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(m.Reader()), nil },
	}).WithContext(ctx)
}

// errOversized is the error of an answer that the gateway does not take for its size.
var errOversized = errors.New("the answer is too large")

// roundTrip sends a request and returns the answer with its body, of at most maxAnswer bytes, which are added to the reservation.
func roundTrip(upstream http.RoundTripper, request *http.Request, maxAnswer int64, room *reservation) (*http.Response, []byte, error) {
	response, err := upstream.RoundTrip(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body := arriving{all: room.of, most: int(maxAnswer) + 1, mostOfAll: maxNamespaceBodies}
	switch length := response.ContentLength; {
	case length > maxAnswer:
		err = fmt.Errorf("%w: it has more than %d bytes", errOversized, maxAnswer)
	case length >= 0:
		err = body.read(response.Body, int(length))
	default:
		err = body.readAll(io.LimitReader(response.Body, maxAnswer+1))
	}
	room.bytes = body.reserved
	if err == nil && int64(len(body.bytes)) > maxAnswer {
		err = fmt.Errorf("%w: it has more than %d bytes", errOversized, maxAnswer)
	} else if err == nil && body.hasNoRoom {
		err = fmt.Errorf("%w: there is no room for it beside those of others", errOversized)
	}
	return response, body.bytes, err
}

// split cuts the answer into the parts of the items. Requests that Merge left out of the batch wait again. If the answer cannot be split, all wait
// again, to be sent one by one.
func (b *batch) split(merged *oip.Batch, errs []error, response *http.Response, body []byte) {
	length, err := 0, error(nil)
	if b.items[0].part.grpc {
		body, err = onlyMessage(body)
	} else {
		length, err = oip.JSONLength(response.Header, len(body))
	}
	var parts []*oip.Message
	if err == nil {
		parts, err = merged.Split(body, length)
	}
	if err != nil {
		b.function.done(b.replica, b.flight, tokenTimes{}, false)
		b.divide(1, newRefusal(causeReplica, "the replica's answer to a batch: "+err.Error()))
		return
	}
	var sent, leftOut []*item
	for i, it := range b.items {
		if errs != nil && errs[i] != nil {
			leftOut = append(leftOut, it)
			continue
		}
		sent = append(sent, it)
	}
	b.function.done(b.replica, b.flight, tokenTimes{}, true, sent...)
	for i, it := range b.items {
		if parts[i] != nil {
			it.turn <- turn{answer: &answered{b.replica.ID, b.flight.began, response.StatusCode, response.Header, parts[i], b.keepRoom(it)}}
		}
	}
	if len(leftOut) > 0 {
		b.function.putBack(leftOut)
	}
}

// keepRoom keeps the memory of the answer reserved for an item until its client has got its part. It returns nil if the client has gone: nobody reads
// that part.
func (b *batch) keepRoom(it *item) *room {
	b.function.mu.Lock()
	defer b.function.mu.Unlock()
	if it.gone {
		return nil
	}
	b.room.users.Add(1)
	return b.room
}

// half is the size of the batches into which a batch is divided.
func (b *batch) half() int { return (len(b.items) + 1) / 2 }

// repeat puts the items back into the queue after a failure that seems to be the replica's, or refuses them if the retry budget is used up. The first
// time, they may be sent as one batch again. If that fails as well, one of them may be the cause, so they are divided: that one must not use up the
// budget of all.
func (b *batch) repeat(otherwise refusal) {
	size := len(b.items)
	if slices.ContainsFunc(b.items, func(it *item) bool { return it.part.limit > 0 }) {
		size = b.half()
	}
	b.again(size, 1, otherwise)
}

// divide puts the items back into the queue, for batches of at most size, after a failure that one of them seems to have caused: the others are still
// to be answered. This takes nothing from the retry budget because it comes to an end: halving a batch down to single requests takes at most twice as
// many sends as without batches.
func (b *batch) divide(size int, otherwise refusal) { b.again(size, 0, otherwise) }

// again puts the items back into the queue, for batches of at most size, or refuses them if the retry budget does not cover the cost of each.
func (b *batch) again(size int, cost float64, otherwise refusal) {
	for _, it := range b.items {
		it.part.limit = size
	}
	if !b.function.retry(cost, b.items...) {
		b.refuse(otherwise, b.items)
	}
}

// refuse ends the wait of those of the items whose clients are still there.
func (b *batch) refuse(why refusal, items []*item) {
	f := b.function
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range items {
		if !it.gone {
			it.batch, it.gone = nil, true
			it.of.count(func(s *statistics) { s.finish(&s.counts.Failed) })
			it.turn <- turn{refusal: why}
		}
	}
}

// pass answers a client with its part of the answer to a batch.
func (e *exchange) pass(it *item, a *answered) {
	e.replica = a.replica
	defer a.room.release()
	if e.grpc {
		e.passCall(it, a)
		return
	}
	m := a.message
	header := a.header.Clone()
	header.Set("Content-Length", strconv.Itoa(m.Len()))
	header.Del(oip.HeaderName)
	if m.JSONLength < m.Len() {
		header.Set(oip.HeaderName, strconv.Itoa(m.JSONLength))
	}
	e.prepareHeader(it, header)
	e.writeStatus(a.status)
	_ = e.writeBody(int64(m.Len()), func(w io.Writer) error { // the client has gone if it fails
		_, err := m.WriteTo(w)
		return err
	})
}
