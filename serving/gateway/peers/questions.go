package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Bounds of questions, each of which is one request to every other gateway, and of the bytes of an answer.
const (
	maxQuestions = 16 // at once
	maxAnswer    = 4 << 10
)

// Answer sets the handler for questions of other gateways with a path. Call it before ServeHTTP.
func (p *Peers) Answer(path string, answer http.HandlerFunc) { p.answers[path] = answer }

// Ask sends GET requests with a path and query to all other gateways that serve. It calls use with the bodies of answers of status 200, one at a time
// as they arrive, until use returns true or ctx ends. Only maxQuestions questions are asked at once; further ones wait.
func (p *Peers) Ask(ctx context.Context, pathAndQuery string, use func(answer []byte) bool) {
	select {
	case p.questions <- struct{}{}:
		defer func() { <-p.questions }()
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := p.view.Load().peers
	answers := make(chan []byte, len(all)) // so that no sender blocks after Ask has returned
	for _, peer := range all {
		go func() {
			answer, err := p.get(ctx, peer.Address, pathAndQuery, maxAnswer)
			if err != nil {
				answer = nil
			}
			answers <- answer
		}()
	}
	for range all {
		select {
		case answer := <-answers:
			if answer != nil && use(answer) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// get returns the body of another gateway's answer, or its first limit bytes.
func (p *Peers) get(ctx context.Context, address, pathAndQuery string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+pathAndQuery, nil)
	if err != nil {
		return nil, err
	}
	response, err := p.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, limit))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	return text, nil
}
