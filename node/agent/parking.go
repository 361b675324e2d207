package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/parking"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Times of parking. A server that has not given its memory back within parkLimit cannot be parked. Waking may take up to wakeLimit, and is
// tried again after that.
const (
	parkLimit   = 30 * time.Second
	wakeLimit   = 5 * time.Minute
	wakePause   = 2 * time.Second // between two attempts
	settlePause = 200 * time.Millisecond
	settleLimit = 3 * time.Second
)

// move is a request to a server to park or wake. It is made without the keeper's locks, since the server may take long to answer, or not
// answer at all.
type move struct {
	parks bool
	done  chan struct{} // closed when err is set
	err   error
	ended time.Time
}

// begin starts a move of a container's server, unless there already is one of the same kind, and returns that move. It returns nil while a
// move of the other kind is under way.
func (k *residencyKeeper) begin(ctx context.Context, id string, parks bool, limit time.Duration, do func(context.Context) error) *move {
	if m := k.moves[id]; m != nil {
		if m.parks != parks && !m.isDone() {
			return nil
		}
		if m.parks == parks {
			return m
		}
	}
	m := &move{parks: parks, done: make(chan struct{})}
	k.moves[id] = m
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		m.err = do(ctx)
		m.ended = time.Now()
		close(m.done)
		signal(k.granter.wake)
	}()
	return m
}

func (m *move) isDone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// forgetMoves forgets the moves of containers that are gone.
func (k *residencyKeeper) forgetMoves() {
	maps.DeleteFunc(k.moves, func(id string, m *move) bool {
		return m.isDone() && !slices.ContainsFunc(k.grants.all(), func(g grant.Grant) bool { return g.ID() == id })
	})
}

// park makes the server in a container give its memory back, takes that memory away from the container's processes, and returns what they
// keep. It is called with each list of pods until it is done or has failed; a failure is stored.
func (k *residencyKeeper) park(ctx context.Context, pod *v1.Pod, granted *grant.Grant, seq int64) (parked parkedState, done bool) {
	id, inTurn := granted.ID(), granted.Class() == share.Swap
	running, served := k.grants.serviceOf(id)
	server, err := serverOf(pod)
	if err == nil && (!served || granted.BestEffort) {
		err = errors.New("the memory of the container is not limited, so what it gives back could not be granted to others")
	}
	if err == nil {
		m := k.begin(ctx, id, true, parkLimit, func(ctx context.Context) error {
			return k.tellToPark(ctx, id, inTurn, server, running.container)
		})
		if m == nil || !m.isDone() {
			return parkedState{}, false
		}
		delete(k.moves, id)
		err = m.err
	}
	if err == nil {
		parked.kept, err = running.container.Park()
	}
	if err == nil && inTurn {
		err = k.checkKept(parked.kept)
	}
	if ctx.Err() != nil {
		return parkedState{}, false // the agent is ending
	}
	if err != nil {
		k.host.release(id)
		k.grants.setEnforced(id, residency.Unknown, parkedState{failed: seq})
		k.Log.Warn("cannot park container", "container", granted.String(), "error", err)
		k.Cluster.Warn(podOf(*granted), eventCannotPark, fmt.Sprintf("container %s cannot be parked: %v", granted.Container, err))
		return parkedState{}, false
	}
	parked.host = max(0, k.host.of(id)-parked.kept)
	k.Log.Info("parked container", "container", granted.String(), "kept", int64(parked.kept), "host", int64(parked.host))
	killPoint("parked")
	return parked, true
}

// checkKept returns an error if a container of class swap keeps more device memory than is set aside for it: other containers could then not
// have their turns.
func (k *residencyKeeper) checkKept(kept share.Bytes) error {
	aside := share.Bytes(0)
	if s := k.Config.Kubernetes.Swap; s != nil {
		aside = share.Bytes(s.KeptMemoryMiB) * share.MiB
	}
	if kept > aside {
		return fmt.Errorf("it keeps %d MiB of the device, more than the %d that are set aside for one that waits for its turn (kubernetes.swap.keptMemoryMiB)",
			kept/share.MiB, aside/share.MiB)
	}
	return nil
}

// wake gives the memory of a container back to its processes, and makes its server take it. It is called with each list of pods until it is
// done.
func (k *residencyKeeper) wake(ctx context.Context, pod *v1.Pod, granted *grant.Grant) (done bool) {
	id := granted.ID()
	running, served := k.grants.serviceOf(id)
	if _, maybe := k.grants.parkingOf(id); !served || granted.BestEffort || !maybe {
		return true // it was never parked
	}
	server, err := serverOf(pod)
	if err != nil {
		return true // it was not parked: no container runs, or none that could have been reached
	}
	if err := running.container.Unpark(); err != nil {
		k.logOnce(pod, "the memory of a parked container is not given back", err.Error())
		return false
	}
	m := k.moves[id]
	if m != nil && !m.parks && m.isDone() && m.err != nil && time.Since(m.ended) > wakePause {
		delete(k.moves, id)
	}
	m = k.begin(ctx, id, false, wakeLimit, func(ctx context.Context) error { return k.Parking.Wake(ctx, server) })
	switch {
	case m == nil || !m.isDone():
		return false
	case m.err != nil:
		if ctx.Err() == nil && k.logOnce(pod, "cannot wake container", m.err.Error()) {
			k.Cluster.Warn(podOf(*granted), eventCannotWake, fmt.Sprintf("container %s is parked and cannot be woken, which is tried again: %v", granted.Container, m.err))
		}
		return false
	}
	delete(k.moves, id)
	k.host.release(id)
	return true
}

// tellToPark makes a server give its memory back, if the host has room for what the server then keeps there. For class swap there always is
// room: containers are admitted to a slice only with a place on the host for all of them.
func (k *residencyKeeper) tellToPark(ctx context.Context, id string, inTurn bool, server parking.Server, c *tokenserver.Container) error {
	method, err := k.Parking.Find(ctx, server)
	if err != nil {
		return err
	}
	if method.CopiesToHost() {
		limit := share.Bytes(k.Config.Kubernetes.ParkedHostMemoryMiB) * share.MiB
		if inTurn {
			limit = 0
		}
		alike := slices.DeleteFunc(k.grants.all(), func(g grant.Grant) bool { return (g.Class() == share.Swap) != inTurn })
		if err := k.host.reserve(id, usedBy(c), alike, limit); err != nil {
			return err
		}
	}
	if err := method.Park(ctx, server); err != nil {
		return fmt.Errorf("%s: %w", method.Name(), err)
	}
	settle(ctx, c)
	return nil
}

// hostAccount counts the memory of the host that is reserved for containers that are being parked, or that this agent has parked. What other
// containers hold there is in their records.
type hostAccount struct {
	mu       sync.Mutex // guards the following
	reserved residency.HostMemory
}

// reserve reserves bytes for a container, unless they and what the grants hold would exceed the limit. A limit of 0 means that there is
// none.
func (h *hostAccount) reserve(id string, bytes share.Bytes, grants []grant.Grant, limit share.Bytes) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := residency.HostMemory{}
	for _, g := range grants {
		held[g.ID()] = max(g.Residency.Host, h.reserved[g.ID()]) // a reservation for a container that is gone does not count
	}
	if !held.Fits(id, bytes, limit) {
		delete(held, id)
		return fmt.Errorf("it may keep %d MiB in the memory of the host, of which parked containers of the node have %d of %d MiB (kubernetes.parkedHostMemoryMiB)",
			bytes/share.MiB, held.Sum()/share.MiB, limit/share.MiB)
	}
	if h.reserved == nil {
		h.reserved = residency.HostMemory{}
	}
	h.reserved[id] = bytes
	return nil
}

func (h *hostAccount) of(id string) share.Bytes {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reserved[id]
}

func (h *hostAccount) release(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.reserved, id)
}

// usedBy returns the device memory that the processes of a container hold.
func usedBy(c *tokenserver.Container) (sum share.Bytes) {
	for _, v := range c.Status().VGPUs {
		sum += v.Used
	}
	return sum
}

// settle waits until a container's memory no longer shrinks: a server may say that it has given memory back before the driver has it.
func settle(ctx context.Context, c *tokenserver.Container) {
	for before, began := usedBy(c), time.Now(); time.Since(began) < settleLimit && ctx.Err() == nil; {
		sleep(ctx, settlePause)
		now := usedBy(c)
		if now >= before {
			return
		}
		before = now
	}
}

// serverOf returns the server in a pod of a function.
func serverOf(pod *v1.Pod) (parking.Server, error) {
	switch {
	case pod.Spec.HostNetwork:
		return parking.Server{}, errors.New("the pod has the network of the node, where others may listen")
	case pod.Status.PodIP == "":
		return parking.Server{}, errors.New("the pod has no address")
	}
	return parking.Server{Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(kube.ServerPort(&pod.Spec))))}, nil
}
