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

	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

var reconnect = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}

// ErrNoOwner and ErrTwoOwners are returned for device IDs if the kubelet's records do not name exactly one owner.
var (
	ErrNoOwner   = errors.New("no container holds these device IDs by the kubelet's records")
	ErrTwoOwners = errors.New("two containers hold these device IDs by the kubelet's records")
)

// Records finds out from the kubelet's podresources API which container holds which device IDs (of gshare/vgpu). It reads each pod
// only once, so that the number of calls depends only on the number of pods that start.
type Records struct {
	pods   Pods
	conn   *grpc.ClientConn
	client resources.PodResourcesListerClient
	limit  *rate.Limiter
	reads  singleflight.Group

	mu     sync.Mutex // guards the following
	owners map[string]owned
	read   map[types.UID]bool // pods whose records are complete
	epoch  uint64             // grows with each allocation and each ForgetAll
	valid  uint64             // first epoch after the last ForgetAll; earlier answers may be outdated
	given  map[string]uint64  // epoch of the last allocation of each device ID; earlier answers may be outdated
}

type owned struct {
	grant.Owner
	deviceIDs []string
}

// DialRecords returns a client of the kubelet's podresources API at the given socket path.
func DialRecords(socket string, pods Pods) (*Records, error) {
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

// Allocated forgets the owners of device IDs that the kubelet is allocating again.
func (r *Records) Allocated(deviceIDs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	for _, t := range deviceIDs {
		r.given[t] = r.epoch
	}
	for key, o := range r.owners {
		if slices.ContainsFunc(deviceIDs, func(t string) bool { return slices.Contains(o.deviceIDs, t) }) {
			delete(r.owners, key)
			delete(r.read, o.UID)
		}
	}
}

// ForgetAll forgets the owners of all device IDs, because the kubelet may have allocated some that Allocated was not called for.
func (r *Records) ForgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	r.valid = r.epoch
	clear(r.owners)
	clear(r.read)
	clear(r.given)
}

// Forget removes the device IDs (device plugin device IDs) that are recorded for a pod which no longer exists.
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

// Claim returns the container that holds exactly these device IDs, with its pod. It returns ErrNoOwner or ErrTwoOwners if the kubelet's records
// name no such container, or two.
func (r *Records) Claim(ctx context.Context, deviceIDs []string) (grant.Claim, error) {
	key := deviceid.Key(deviceIDs)
	o, known := r.known(key)
	if !known {
		// One call reads for all waiting callers; those that arrive while it reads call again.
		for range 2 {
			if _, err, _ := r.reads.Do("", func() (any, error) { return nil, r.readFor(ctx) }); err != nil {
				return grant.Claim{}, err
			}
			if o, known = r.known(key); known {
				break
			}
		}
	}
	if _, late := r.pods.(*Bound); late && !known { // the pod of a record may have been replaced by another one of the same name
		r.ForgetAll()
	}
	if !known {
		return grant.Claim{}, ErrNoOwner
	}
	if o.Container == "" {
		return grant.Claim{}, ErrTwoOwners
	}
	pod, err := r.pods.Get(ctx, o.UID)
	if errors.Is(err, ErrNoPod) || err == nil && kube.Ended(pod) { // the kubelet gives its device IDs to others
		r.Forget(o.UID)
		return grant.Claim{}, ErrNoOwner
	}
	return grant.Claim{Pod: pod, Container: o.Container, DeviceIDs: deviceIDs}, err
}

// StillHeld reports whether the container of the claim still holds its device IDs, because the kubelet has not allocated them again.
func (r *Records) StillHeld(c grant.Claim) bool {
	o, known := r.known(deviceid.Key(c.DeviceIDs))
	return known && o.UID == c.Pod.UID && o.Container == c.Container
}

// All returns the claims of all running containers that hold device IDs, that is, device IDs of gshare/vgpu.
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
		if i >= 0 && o.Container != "" && !kube.Ended(pods[i]) {
			claims = append(claims, grant.Claim{Pod: pods[i], Container: o.Container, DeviceIDs: o.deviceIDs})
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

// readTimeout bounds one read of the device allocations of all pods.
const readTimeout = 20 * time.Second

// readFor runs readAll for several waiting callers, so the end of the first caller's context does not stop it.
func (r *Records) readFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return r.readAll(ctx)
}

// readAll reads from the kubelet which device IDs it has allocated to the containers of those pods that are not completely known yet.
func (r *Records) readAll(ctx context.Context) error {
	pods, err := r.pods.List(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if kube.Ended(pod) || !kube.RequestsShare(pod) || r.Complete(pod.UID) {
			continue
		}
		if slices.ContainsFunc(pods, func(other *v1.Pod) bool { return namesake(pod, other) }) {
			continue // Get identifies pods by name, so its answer is ambiguous for two pods of one name
		}
		if err := r.readPod(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// Complete reports whether the device IDs of all of the pod's containers that need some are known.
func (r *Records) Complete(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read[uid]
}

func namesake(a, b *v1.Pod) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.UID != b.UID && !kube.Ended(b)
}

func (r *Records) readPod(ctx context.Context, pod *v1.Pod) error {
	r.mu.Lock()
	epoch := r.epoch
	r.mu.Unlock()
	var answer *resources.GetPodResourcesResponse
	err := retryWhileBusy(ctx, r.limit, func(ctx context.Context) (err error) {
		answer, err = r.client.Get(ctx, &resources.GetPodResourcesRequest{PodName: pod.Name, PodNamespace: pod.Namespace})
		return err
	})
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil // the pod is gone, for which the kubelet has no error code
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storeRecord(pod, answer.GetPodResources().GetContainers(), epoch)
	return nil
}

// storeRecord stores the device IDs of one pod's containers. It skips device IDs that the kubelet has allocated again since the epoch at which
// the record was requested. The caller holds the lock.
func (r *Records) storeRecord(pod *v1.Pod, containers []*resources.ContainerResources, epoch uint64) {
	if epoch < r.valid {
		return
	}
	learned := 0
	for _, c := range containers {
		var deviceIDs []string
		for _, d := range c.Devices {
			if d.ResourceName == string(kube.ResourceVGPU) {
				deviceIDs = append(deviceIDs, d.DeviceIds...)
			}
		}
		if len(deviceIDs) == 0 || slices.ContainsFunc(deviceIDs, func(t string) bool { return r.given[t] > epoch }) {
			continue
		}
		slices.Sort(deviceIDs)
		o := owned{grant.Owner{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Container: c.Name}, deviceIDs}
		key := deviceid.Key(deviceIDs)
		if other, ok := r.owners[key]; ok && other.Owner != o.Owner {
			o.Container = "" // k8s#137534: given twice
		}
		r.owners[key] = o
		learned++
	}
	r.read[pod.UID] = learned == len(kube.ContainersWithVGPUs(pod))
}

// Allocation is a device that another device plugin has allocated to a container.
type Allocation struct {
	Namespace, Pod, Container string
	Resource, Device          string // ID in the plugin
}

// AllocatedElsewhere returns the devices that other device plugins have allocated to containers. It makes one call and does not retry.
func (r *Records) AllocatedElsewhere(ctx context.Context) (found []Allocation, err error) {
	answer, err := r.client.List(ctx, &resources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	for _, pod := range answer.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				if d.ResourceName == string(kube.ResourceVGPU) {
					continue
				}
				for _, id := range d.DeviceIds {
					found = append(found, Allocation{pod.Namespace, pod.Name, c.Name, d.ResourceName, id})
				}
			}
		}
	}
	return found, nil
}
