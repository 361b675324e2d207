package kubelet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
)

var reconnect = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}

// ErrNoOwner and ErrTwoOwners are returned for tickets whose owner does not follow from the kubelet's records.
var (
	ErrNoOwner   = errors.New("no container holds these tickets by the kubelet's records")
	ErrTwoOwners = errors.New("two containers hold these tickets by the kubelet's records")
)

// Records finds out which container holds which tickets (device IDs of gshare/vgpu) from the kubelet's podresources API. It reads each pod
// only once, so that the number of calls depends on the pods that start.
type Records struct {
	pods   *Pods
	conn   *grpc.ClientConn
	client resources.PodResourcesListerClient
	limit  *rate.Limiter
	reads  singleflight.Group

	mu     sync.Mutex // guards the following
	owners map[string]owned
	read   map[types.UID]bool // pods whose records are complete
	epoch  uint64             // of allocations
	given  map[string]uint64  // epoch of the last allocation of each ticket; earlier answers may be outdated
}

type owned struct {
	grant.Owner
	tickets []string
}

// DialRecords returns a client of the kubelet's podresources API at the given socket path.
func DialRecords(socket string, pods *Pods) (*Records, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	return &Records{
		pods: pods, conn: conn, client: resources.NewPodResourcesListerClient(conn),
		limit:  rate.NewLimiter(callsPerSecond, callsAtOnce),
		owners: map[string]owned{}, read: map[types.UID]bool{}, given: map[string]uint64{},
	}, nil
}

// Close closes the connection to the kubelet.
func (r *Records) Close() { r.conn.Close() }

// Allocated forgets the owners of tickets that the kubelet is allocating again.
func (r *Records) Allocated(tickets []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	for _, t := range tickets {
		r.given[t] = r.epoch
	}
	for key, o := range r.owners {
		if slices.ContainsFunc(tickets, func(t string) bool { return slices.Contains(o.tickets, t) }) {
			delete(r.owners, key)
			delete(r.read, o.UID)
		}
	}
}

// Forget removes the stored tickets of a pod that no longer exists.
func (r *Records) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.read, uid)
	for key, o := range r.owners {
		if o.UID == uid {
			delete(r.owners, key)
		}
	}
}

// Claim returns the container that holds exactly these tickets, with its pod. It returns ErrNoOwner or ErrTwoOwners if the kubelet's
// records name none, or two.
func (r *Records) Claim(ctx context.Context, tickets []string) (grant.Claim, error) {
	key := ticket.Key(tickets)
	o, known := r.known(key)
	if !known {
		// One call reads for all waiting callers; those that came during the reading repeat it.
		for range 2 {
			if _, err, _ := r.reads.Do("", func() (any, error) { return nil, r.readFor(ctx) }); err != nil {
				return grant.Claim{}, err
			}
			if o, known = r.known(key); known {
				break
			}
		}
	}
	if !known {
		return grant.Claim{}, ErrNoOwner
	}
	if o.Container == "" {
		return grant.Claim{}, ErrTwoOwners
	}
	pod, err := r.pods.Get(ctx, o.UID)
	if errors.Is(err, ErrNoPod) {
		r.Forget(o.UID)
		return grant.Claim{}, ErrNoOwner
	}
	return grant.Claim{Pod: pod, Container: o.Container, Tickets: tickets}, err
}

// StillHeld reports whether the container of the claim still holds its tickets: the kubelet has not allocated them again.
func (r *Records) StillHeld(c grant.Claim) bool {
	o, known := r.known(ticket.Key(c.Tickets))
	return known && o.UID == c.Pod.UID && o.Container == c.Container
}

// All returns the claims of all running containers that hold tickets, that is, device IDs of gshare/vgpu.
func (r *Records) All(ctx context.Context) (claims []grant.Claim, err error) {
	if err := r.readAll(ctx); err != nil {
		return nil, err
	}
	pods, err := r.pods.List(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.owners {
		i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == o.UID })
		if i >= 0 && o.Container != "" && !Ended(pods[i]) {
			claims = append(claims, grant.Claim{Pod: pods[i], Container: o.Container, Tickets: o.tickets})
		}
	}
	return claims, nil
}

func (r *Records) known(key string) (owned, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.owners[key]
	return o, ok
}
