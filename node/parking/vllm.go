package parking

import (
	"context"
	"net/http"
)

// VLLM parks a vLLM server that runs with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1: at level 1 it copies its weights to the memory of the
// host, and drops its cache.
type VLLM struct{}

// Name implements Method.
func (VLLM) Name() string { return "vLLM" }

// CopiesToHost implements Method.
func (VLLM) CopiesToHost() bool { return true }

// Probe implements Method.
func (v VLLM) Probe(ctx context.Context, s Server) error {
	_, err := v.isSleeping(ctx, s)
	if isForeign(err) {
		return &UnsupportedError{v.Name(), "the server has no /is_sleeping, which vLLM has with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"}
	}
	return err
}

// Park implements Method.
func (v VLLM) Park(ctx context.Context, s Server) error {
	if sleeps, err := v.isSleeping(ctx, s); err != nil || sleeps {
		return err
	}
	if err := s.call(ctx, http.MethodPost, "/sleep?level=1", nil, nil); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) { return v.isSleeping(ctx, s) })
}

// Wake implements Method.
func (v VLLM) Wake(ctx context.Context, s Server) error {
	if sleeps, err := v.isSleeping(ctx, s); err != nil || !sleeps {
		return err
	}
	if err := s.call(ctx, http.MethodPost, "/wake_up", nil, nil); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		sleeps, err := v.isSleeping(ctx, s)
		return !sleeps, err
	})
}

func (VLLM) isSleeping(ctx context.Context, s Server) (bool, error) {
	var answer struct {
		IsSleeping *bool `json:"is_sleeping"`
	}
	if err := s.call(ctx, http.MethodGet, "/is_sleeping", nil, &answer); err != nil {
		return false, err
	}
	if answer.IsSleeping == nil {
		return false, errNotJSON
	}
	return *answer.IsSleeping, nil
}
