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

// ErrNoOwner and ErrTwoOwners say that the kubelet's records do not tell whose tickets are.
var (
	ErrNoOwner   = errors.New("no container holds these tickets by the kubelet's records")
	ErrTwoOwners = errors.New("two containers hold these tickets by the kubelet's records")
)

// Records tells whose tickets are, by what the kubelet itself has written down. It asks for each pod once: for all containers
// that start together, the kubelet gets as many calls as there are pods.
type Records struct {
	pods   *Pods
	conn   *grpc.ClientConn
	client resources.PodResourcesListerClient
	limit  *rate.Limiter
	reads  singleflight.Group

	mu     sync.Mutex // guards the following
	owners map[string]owned
	read   map[types.UID]bool // pods whose record is known
	epoch  uint64             // of allocations
	given  map[string]uint64  // when each ticket was given away last; what was asked before may be out of date
}

type owned struct {
	grant.Owner
	tickets []string
}

// DialRecords takes the socket of podresources.
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

// Close ends the connection.
func (r *Records) Close() { r.conn.Close() }

// Allocated forgets whose the tickets were: the kubelet is giving them away.
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

// Forget drops a pod that is gone.
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

// Claim finds the container that holds exactly these tickets.
func (r *Records) Claim(ctx context.Context, tickets []string) (grant.Claim, error) {
	key := ticket.Key(tickets)
	o, known := r.known(key)
	if !known {
		// One looks for all that wait; who came while it was looking looks again.
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

// Still says that the tickets have not been given away since the claim was made.
func (r *Records) Still(c grant.Claim) bool {
	o, known := r.known(ticket.Key(c.Tickets))
	return known && o.UID == c.Pod.UID && o.Container == c.Container
}

// All finds the containers of all pods that hold tickets.
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
