package model

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/cuda"
)

// Store shares weights between the servers of a device.
type Store interface {
	// Load maps the weights with a digest read-only, after fill has written them if the store does not have them.
	Load(ctx context.Context, digest [sha256.Size]byte, bytes int, fill func(write func(at int, from []byte) error) error) (cuda.Address, error)
	// Unload removes the mapping.
	Unload() error
}

// piece is how many bytes of the weights are generated and copied at a time.
const piece = 4 << 20

// content generates the weights and calls a function with each piece. They begin with the model's name, on which results depend.
func (t Table) content(each func(at int, piece []byte) error) error {
	random := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32.32s", t.Name))))
	content := make([]byte, min(piece, t.Weights))
	for at := 0; at < t.Weights; at += piece {
		content = content[:min(piece, t.Weights-at)]
		random.Read(content)
		if at == 0 {
			copy(content, t.Name)
		}
		if err := each(at, content); err != nil {
			return err
		}
	}
	return nil
}

// Digest returns the SHA-256 of the weights.
func (t Table) Digest() [sha256.Size]byte {
	hash := sha256.New()
	_ = t.content(func(_ int, piece []byte) error {
		hash.Write(piece)
		return nil
	})
	return [sha256.Size]byte(hash.Sum(nil))
}

// Load copies the weights to the device, or maps those in the store, and allocates the workspace. It does nothing if the model is loaded. It
// takes at least Table.Load, unless ctx ends before.
func (e *Engine) Load(ctx context.Context) error {
	return e.change(ctx, true, func(w *worker) (err error) {
		least := time.After(e.Table.Load)
		if e.Table.Workspace > 0 {
			if e.workspace, err = w.Allocate(e.Table.Workspace); err != nil {
				return err
			}
		}
		if e.weights, err = e.loadWeights(ctx, w); err != nil {
			return errors.Join(err, e.freeWorkspace(w))
		}
		select {
		case <-least:
		case <-ctx.Done(): // the model is loaded nevertheless
		}
		return nil
	})
}

func (e *Engine) loadWeights(ctx context.Context, w *worker) (cuda.Address, error) {
	if e.Store != nil {
		if e.Digest == nil {
			digest := e.Table.Digest()
			e.Digest = &digest
		}
		return e.Store.Load(ctx, *e.Digest, e.Table.Weights, e.Table.content)
	}
	address, err := w.Allocate(e.Table.Weights)
	if err != nil {
		return 0, err
	}
	if err := e.Table.content(func(at int, piece []byte) error { return w.Upload(address+cuda.Address(at), piece) }); err != nil {
		return 0, errors.Join(err, w.Free(address))
	}
	return address, nil
}

func (e *Engine) freeWorkspace(w *worker) error {
	if e.Table.Workspace == 0 {
		return nil
	}
	return w.Free(e.workspace)
}

// Unload frees weights and workspace once all requests in progress have ended. Weights in a store stay there.
func (e *Engine) Unload(ctx context.Context) error {
	return e.change(ctx, false, func(w *worker) error {
		err := e.freeWorkspace(w)
		if e.Store != nil {
			return errors.Join(err, e.Store.Unload())
		}
		return errors.Join(err, w.Free(e.weights))
	})
}
