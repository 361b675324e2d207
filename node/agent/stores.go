package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/store"
)

// storeKeeper keeps the model stores running whose weights pods declare. Stores are not charged for memory: the book charges the declared
// weights, and a store holds no more.
type storeKeeper struct {
	*Options
	slices *sliceRuntime
	grants *grantStore
}

// storesOf returns the stores of a grant: one for each of its slices if its pod declares weights.
func storesOf(g *grant.Grant) (all []modelstore.Store) {
	if len(g.Weights) == 0 {
		return nil
	}
	for _, v := range g.VGPUs {
		all = append(all, modelstore.Store{Slice: v.Slice, Namespace: g.Namespace})
	}
	return all
}

// needed returns the stores that grants need, each once, including grants that are being set up.
func (k *storeKeeper) needed() (all []modelstore.Store) {
	k.grants.mu.Lock()
	defer k.grants.mu.Unlock()
	for _, g := range k.grants.book.All() {
		for _, s := range storesOf(&g) {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// open prepares the slices of a grant whose record has been written. It ends stores there that no grant needs any more, starts the stores of
// the grant, and makes the other stores there drop weights that no pod declares any more. When it returns nil, all memory of the slices that
// the book counts as free is free. A hung store of another slice does not block it.
func (k *storeKeeper) open(ctx context.Context, g *grant.Grant) error {
	if k.Stores == nil {
		return nil
	}
	var on []string
	for _, v := range g.VGPUs {
		on = append(on, v.Slice)
	}
	if err := k.Stores.RetainOn(on, k.needs); err != nil { // releasing the last grant of such a store may not have ended it yet
		return err
	}
	own := storesOf(g)
	for _, s := range own {
		if err := k.start(ctx, s); err != nil {
			return err
		}
	}
	for _, v := range g.VGPUs {
		var others []string
		for _, other := range k.grants.onSlice(v.Slice) {
			if len(other.Weights) > 0 && !slices.Contains(own, modelstore.Store{Slice: v.Slice, Namespace: other.Namespace}) {
				others = append(others, other.Namespace)
			}
		}
		slices.Sort(others)
		if err := k.Stores.Trim(ctx, v.Slice, slices.Compact(others)); err != nil {
			return err
		}
	}
	return nil
}

func (k *storeKeeper) start(ctx context.Context, s modelstore.Store) error {
	uuid := k.slices.uuidOf(s.Slice)
	if uuid == "" {
		return core.ErrMissing
	}
	return k.Stores.Open(ctx, s, uuid, k.survivorsOf)
}

// errSessions is returned while it is not known which processes the containers have.
var errSessions = errors.New("processes have not connected again yet")

// survivorsOf returns the processes of the containers that share a store, which may have mapped the weights that they declare. A process
// that has mapped memory is connected to the token server, unless its container has its slice alone.
func (k *storeKeeper) survivorsOf(s modelstore.Store) (left store.Survivors, _ error) {
	for _, g := range k.grants.onSlice(s.Slice) {
		if g.Namespace != s.Namespace || len(g.Weights) == 0 {
			continue
		}
		left.Weights = append(left.Weights, g.Weights...)
		service, served := k.grants.serviceOf(g.ID())
		if !served {
			continue
		}
		for _, v := range service.container.Status().VGPUs {
			if v.LeasedSessions > 0 {
				return left, errSessions
			}
			for _, p := range v.Processes {
				left.PIDs = append(left.PIDs, p.PID)
			}
		}
	}
	return left, nil
}

// retain ends the stores that no grant needs; grants that are being set up count, too.
func (k *storeKeeper) retain() {
	if k.Stores == nil {
		return
	}
	if err := k.Stores.Retain(k.needs); err != nil {
		k.Log.Error("failed to end a model store", "error", err)
	}
}

// needs reports whether a grant needs the store with this ID.
func (k *storeKeeper) needs(id string) bool {
	return slices.ContainsFunc(k.needed(), func(s modelstore.Store) bool { return s.ID() == id })
}

// loop replaces stores that have ended or hang, until the context ends.
func (k *storeKeeper) loop(ctx context.Context) {
	failed := map[modelstore.Store]string{}
	for k.Stores != nil && ctx.Err() == nil {
		for _, s := range k.needed() {
			err := k.start(ctx, s)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != failed[s] && ctx.Err() == nil {
				k.Log.Error("failed to keep a model store running", "slice", s.Slice, "namespace", s.Namespace, "error", err)
			}
			failed[s] = text
		}
		k.retain() // ends what an earlier call failed to end
		sleep(ctx, max(k.Config.Kubernetes.HealthPeriod.Duration, time.Second))
	}
}
