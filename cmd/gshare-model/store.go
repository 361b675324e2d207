package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	gpu "github.com/gshare-dev/gshare/cmd/gshare-model/internal/cuda"
	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
	"github.com/gshare-dev/gshare/node/store/client"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// declaration returns the weights of a model in the form in which pods declare them: their digest, and the memory that they take in the store.
func declaration(t model.Table) string {
	return fmt.Sprintf("%s=%dMi", store.Digest(t.Digest()), stored(t)/share.MiB)
}

// stored returns the memory that the weights of a model take in the store.
func stored(t model.Table) share.Bytes {
	return (share.Bytes(t.Weights) + store.Granularity - 1) / store.Granularity * store.Granularity
}

// digest returns the digest in --declared, or nil if that is not set.
func (o *options) digest(t model.Table) (*store.Digest, error) {
	if o.declared == "" {
		return nil, nil
	}
	list, err := share.ParseWeights(o.declared)
	if err != nil {
		return nil, fmt.Errorf("--declared: %w", err)
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("--declared: %d weights, of which it does not say which are the model's", len(list))
	}
	if need := stored(t); list[0].Memory < need {
		return nil, fmt.Errorf("--declared: %d MiB, and the weights need %d MiB", list[0].Memory/share.MiB, need/share.MiB)
	}
	digest, err := store.ParseDigest(string(list[0].Digest))
	return &digest, err
}

// sharedWeights is a model.Store that keeps the weights in the model store of the slice.
type sharedWeights struct {
	device cuda.Device
	socket string
	log    *slog.Logger

	lease   *client.Client // held while the weights are loaded
	mapping cuda.Mapping
}

// Load maps the weights; see model.Store.
func (s *sharedWeights) Load(ctx context.Context, digest [32]byte, bytes int, fill func(func(int, []byte) error) error) (gpu.Address, error) {
	lease, err := client.Dial(ctx, s.socket)
	if err != nil {
		return 0, err
	}
	m, stored, err := lease.Load(ctx, s.device, store.Key{Digest: digest}, share.Bytes(bytes), func(write client.Write) error {
		return fill(func(at int, from []byte) error { return write(share.Bytes(at), from) })
	})
	if err != nil {
		return 0, errors.Join(err, lease.Close())
	}
	s.log.Info("mapped the weights of the store", "weights", store.Digest(digest).String(), "stored", stored)
	s.lease, s.mapping = lease, m
	return gpu.Address(m.Address), nil
}

// Unload removes the mapping and ends the lease; the store keeps the weights.
func (s *sharedWeights) Unload() error {
	return errors.Join(s.device.Unmap(s.mapping), s.lease.Close())
}
