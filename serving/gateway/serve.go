package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// ServeHTTP passes a request to a replica of the function that its host names or, if the host names none, the model in its body.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.serve(w, r, "") }

// serve is ServeHTTP. elapsed is the value of elapsedHeader if another gateway has forwarded the request, empty if it comes from a client.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, elapsed string) {
	r, token, refused := g.takeToken(r)
	e := &exchange{gateway: g, writer: w, request: r, sender: sender{gateway: g, request: r, unchecked: g.callers == nil, token: token}, start: time.Now()}
	if elapsed != "" {
		e.fromPeer, e.sender.unchecked, e.spent = true, true, parseElapsed(r.Header.Get(spentHeader))
		e.start = e.start.Add(-parseElapsed(elapsed))
		r.Header.Del(elapsedHeader)
		r.Header.Del(spentHeader)
	}
	// This applies to refused requests, too: the server reads a body before it sends the answer. In HTTP/2 the stream of a request may be open
	// although its length is 0.
	if r.ContentLength != 0 || r.ProtoMajor == 2 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if r.ProtoMajor == 2 {
		e.grpc = isGRPC(r)
		defer func() { // for what the server still has to send after this function
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		}()
	}
	if r.Method == http.MethodConnect { // after a success, the client would take the connection for a tunnel
		refused = newRefusal(causeMethod, "CONNECT: the gateway is no proxy to other servers")
	}
	if refused.status != 0 {
		e.refuseUnnamed(refused)
		return
	}
	host := parseHost(r.Host)
	if e.function = e.sender.callable(host); e.function == nil {
		if isModelList(r) && !e.fromPeer { // a peer forwards only requests to functions, so this is one that this gateway does not know yet
			g.writeModels(w, e.sender.mayList())
			return
		}
		if model, ok := askedModel(r); ok && !e.fromPeer && g.hasModels() {
			e.describeModel(model)
			return
		}
		if r.Method == http.MethodOptions && strings.HasPrefix(r.URL.Path, "/v1/") && !e.fromPeer && g.hasModels() {
			e.writeOptions()
			return
		}
		defer e.modelBody.release()
		if why := e.findModel(host); why.status != 0 {
			e.refuseUnnamed(why)
			return
		}
	}
	// From now on a body that findModel has read takes memory from the function's namespace only, however long another gateway takes to answer. If
	// there is no room, serve refuses the request.
	if e.modelBody.moveTo(e.function.bodies.within) && e.relayed() {
		return
	}
	returned := false
	defer func() { // also if serve panics, as it does to break off an answer
		if !returned && e.status == 0 {
			e.status = http.StatusInternalServerError
		}
		e.report()
	}()
	e.serve()
	returned = true
}

func (e *exchange) serve() {
	err := validate(e.request)
	var d demands
	if err == nil {
		d, err = e.demands()
	}
	if err != nil {
		e.reject(newRefusal(causeBadRequest, err.Error()))
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
	if refused.reason == reasonQueueFull { // it has arrived completely, but there is no room for it
		e.function.place.refuseReceived()
		e.refuse(refused)
		return
	}
	var p *part
	var said time.Duration
	if refused.status == 0 {
		p, said, refused = e.locate(e.function.place.maxBatch(settings.MaxBatch))
	}
	if refused.status != 0 {
		e.reject(refused)
		return
	}
	d.timeout, d.stream = cmp.Or(d.timeout, said), e.rest != nil || isUpgrade(e.request)
	it, refused := e.function.admit(p, d, e.start, e.spent)
	if refused.status != 0 {
		e.refuse(refused)
		return
	}
	ctx, cancel := context.WithCancelCause(e.request.Context())
	defer cancel(nil)
	e.cancel = cancel
	if it.explicit() {
		e.deadline = time.AfterFunc(time.Until(it.due), func() { cancel(context.DeadlineExceeded) })
		defer e.deadline.Stop()
	}
	if it.part != nil { // it may be sent with others at any time
		e.tellDispatched()
	}
	for tries := 1; ; tries++ {
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
		case e.forward(ctx, it, got, tries):
			return
		}
	}
}

// validate refuses HTTP/2 requests with what net/http refuses in HTTP/1: it would not send them to a replica, or the replica would see another request.
func validate(r *http.Request) error {
	switch {
	case r.ProtoMajor != 2:
		return nil
	case !httpguts.ValidHeaderFieldName(r.Method): // methods are tokens, too
		return fmt.Errorf("method %.32q is not valid", r.Method)
	case !httpguts.ValidHostHeader(r.Host):
		return fmt.Errorf("authority %.100q is not valid", r.Host)
	case strings.Contains(r.URL.RawQuery, " "):
		return errors.New("the query has a space")
	}
	return nil
}

// wait waits for the turn of an item. It returns false if the client has gone or its deadline has passed, and then has answered the client.
func (e *exchange) wait(ctx context.Context, it *item) (turn, bool) {
	begin := time.Now()
	select {
	case got := <-it.turn:
		e.queued += max(0, got.began().Sub(begin))
		return got, true
	case <-ctx.Done():
	}
	why, counter := e.loss(ctx)
	if !it.cancel(counter) { // its turn has come in the meantime
		got := <-it.turn
		if got.replica == nil { // its end has been counted already
			e.queued += max(0, got.began().Sub(begin))
			return got, true
		}
		e.function.count(func(s *statistics) { s.finish(counter) })
		it.queue.Load().failed(got.replica, got.flight, none)
	}
	e.queued += time.Since(begin)
	e.giveUp(why)
	return turn{}, false
}
