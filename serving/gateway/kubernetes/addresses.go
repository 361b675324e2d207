package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// addressWait is how long a caller waits for a pod to appear that has its address, and maxAddressWaiters how many callers may wait at once. A pod may
// send requests before the kubelet has reported its address.
const (
	addressWait       = 3 * time.Second
	maxAddressWaiters = 256
)

// Addresses knows the namespaces and addresses of all pods of a cluster, and nothing else about them: some 430 bytes per pod. Pods on the host
// network have no address of their own, and those that have ended no longer have one.
type Addresses struct {
	mu      sync.Mutex
	pods    map[types.NamespacedName]podAddresses
	byIP    map[netip.Addr][]types.NamespacedName
	changed chan struct{} // closed, and replaced, when a pod gets an address
	waiting int
	synced  bool
}

type podAddresses struct {
	uid       types.UID
	addresses []netip.Addr
}

// NewAddresses returns Addresses without any pods.
func NewAddresses() *Addresses {
	return &Addresses{pods: map[types.NamespacedName]podAddresses{}, byIP: map[netip.Addr][]types.NamespacedName{}, changed: make(chan struct{})}
}

// errNoPod is the error of Namespace for an address that cannot be attributed to one pod with certainty.
var errNoPod = errors.New("is not that of one pod of the cluster")

// Namespace returns the namespace of the pod with an address. If there is none yet, it waits for it up to addressWait.
func (a *Addresses) Namespace(ctx context.Context, address netip.Addr) (string, error) {
	a.mu.Lock()
	namespace := a.find(address)
	a.mu.Unlock()
	if namespace != "" { // the usual case, without the cost of a timer
		return namespace, nil
	}
	return a.wait(ctx, address)
}

func (a *Addresses) wait(ctx context.Context, address netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, addressWait)
	defer cancel()
	refusal := fmt.Errorf("the address %s %w", address, errNoPod)
	waits := false
	for {
		a.mu.Lock()
		namespace, changed := a.find(address), a.changed
		switch {
		case waits:
			a.waiting--
		case namespace == "" && a.waiting >= maxAddressWaiters:
			a.mu.Unlock()
			return "", refusal
		}
		if waits = namespace == ""; waits {
			a.waiting++
		}
		a.mu.Unlock()
		if !waits {
			return namespace, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			a.mu.Lock()
			a.waiting--
			a.mu.Unlock()
			return "", refusal
		}
	}
}

// find returns the namespace of the pods with an address, or "" if there are none or they are of several namespaces. The caller holds the mutex.
func (a *Addresses) find(address netip.Addr) string {
	namespace := ""
	for _, pod := range a.byIP[address] {
		if namespace != "" && pod.Namespace != namespace {
			return ""
		}
		namespace = pod.Namespace
	}
	return namespace
}

// Run watches the pods until ctx ends. While the API server is unreachable, the last known state remains in use.
func (a *Addresses) Run(ctx context.Context, pods *client.CoreV1Client, log *slog.Logger) {
	running := fields.AndSelectors(fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed)))
	lw := toolscache.NewFilteredListWatchFromClient(pods.RESTClient(), "pods", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = running.String() })
	r := toolscache.NewReflectorWithOptions(lw, &v1.Pod{}, a, toolscache.ReflectorOptions{Name: "addresses of pods"})
	for ctx.Err() == nil { // ListAndWatch returns when a watch has ended; then list again
		if err := r.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			log.Warn("watch of pods ended, will begin again", "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// WaitForSync blocks until Synced, and returns false if ctx ends before that.
func (a *Addresses) WaitForSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), a.Synced)
}

// Synced reports whether all pods that existed when Run was called are known.
func (a *Addresses) Synced() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.synced
}

// Add implements cache.ReflectorStore.
func (a *Addresses) Add(object any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(object.(*v1.Pod))
	return nil
}

// Update implements cache.ReflectorStore.
func (a *Addresses) Update(object any) error { return a.Add(object) }

// Delete implements cache.ReflectorStore.
func (a *Addresses) Delete(object any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := object.(*v1.Pod)
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	if known, ok := a.pods[key]; ok && known.uid == p.UID {
		a.remove(key)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (a *Addresses) Replace(objects []any, _ string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.pods)
	clear(a.byIP)
	for _, o := range objects {
		a.set(o.(*v1.Pod))
	}
	a.synced = true
	return nil
}

// Resync implements cache.ReflectorStore.
func (a *Addresses) Resync() error { return nil }

// Transformer implements cache.TransformingStore, so that a long list of pods is never in memory as a whole.
func (a *Addresses) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) {
		if p, ok := object.(*v1.Pod); ok {
			return &v1.Pod{
				TypeMeta: p.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Annotations: initialEvents(p)},
				Spec:   v1.PodSpec{HostNetwork: p.Spec.HostNetwork},
				Status: v1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
			}, nil
		}
		return object, nil
	}
}

// initialEvents returns the annotation by which the API server marks the end of the initial list of pods.
func initialEvents(p *v1.Pod) map[string]string {
	if _, ok := p.Annotations[metav1.InitialEventsAnnotationKey]; !ok {
		return nil
	}
	return pick(p.Annotations, metav1.InitialEventsAnnotationKey)
}

// set records the addresses of a pod. The caller holds the mutex.
func (a *Addresses) set(p *v1.Pod) {
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	now := addressesOf(p)
	if known, ok := a.pods[key]; ok && known.uid == p.UID && slices.Equal(known.addresses, now) {
		return
	}
	a.remove(key)
	if len(now) == 0 {
		return
	}
	a.pods[key] = podAddresses{p.UID, now}
	for _, address := range now {
		a.byIP[address] = append(a.byIP[address], key)
	}
	if a.waiting > 0 {
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// remove forgets a pod. The caller holds the mutex.
func (a *Addresses) remove(key types.NamespacedName) {
	for _, address := range a.pods[key].addresses {
		left := slices.DeleteFunc(a.byIP[address], func(other types.NamespacedName) bool { return other == key })
		if a.byIP[address] = left; len(left) == 0 {
			delete(a.byIP, address)
		}
	}
	delete(a.pods, key)
}

// addressesOf returns the addresses that belong to this pod alone.
func addressesOf(p *v1.Pod) (all []netip.Addr) {
	if p.Spec.HostNetwork || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return nil
	}
	for _, ip := range append([]v1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if address, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(all, address.Unmap()) {
			all = append(all, address.Unmap())
		}
	}
	return all
}
