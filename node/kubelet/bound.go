package kubelet

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Bound reads the pods of a node from the API server, for kubelets without PodsAPI: those before 1.36, and 1.36 unless the feature gate is
// on. What it has read remains available while the API server is away. The kubelet may learn of a pod, or forget it, a moment earlier or
// later than Bound. For that moment, a pod that replaces another one of the same name may be taken for the holder of the other's device IDs.
// This gives nobody a foreign share: processes that use a grant are identified through the kernel, and a container whose device IDs do not
// match its pod's is refused until the kubelet has caught up.
type Bound struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	ended    sync.WaitGroup
}

var errNotRead = errors.New("the node's pods have not been read from the API server yet")

// WatchBound returns a client that reads the pods bound to the node until Close is called.
func WatchBound(client kubernetes.Interface, node string) *Bound {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}))
	ctx, cancel := context.WithCancel(context.Background())
	b := &Bound{informer: factory.Core().V1().Pods().Informer(), stop: cancel}
	b.ended.Go(func() { b.informer.RunWithContext(ctx) })
	return b
}

// Close stops reading.
func (b *Bound) Close() {
	b.stop()
	b.ended.Wait()
}

// List returns all pods bound to the node. It blocks until they have been read once, or the context ends.
func (b *Bound) List(ctx context.Context) ([]*v1.Pod, error) {
	if !cache.WaitForCacheSync(ctx.Done(), b.informer.HasSynced) {
		return nil, errNotRead
	}
	return b.TryList(ctx)
}

// TryList returns all pods bound to the node, or an error if they have not been read yet.
func (b *Bound) TryList(context.Context) (pods []*v1.Pod, err error) {
	if !b.informer.HasSynced() {
		return nil, errNotRead
	}
	for _, stored := range b.informer.GetStore().List() {
		pods = append(pods, stored.(*v1.Pod).DeepCopy())
	}
	return pods, nil
}

// Get returns the pod with this UID, or ErrNoPod if it is not bound to the node.
func (b *Bound) Get(ctx context.Context, uid types.UID) (*v1.Pod, error) {
	if !cache.WaitForCacheSync(ctx.Done(), b.informer.HasSynced) {
		return nil, errNotRead
	}
	for _, stored := range b.informer.GetStore().List() {
		if pod := stored.(*v1.Pod); pod.UID == uid {
			return pod.DeepCopy(), nil
		}
	}
	return nil, ErrNoPod
}

// Watch calls changed when a pod may have ended or its SM limit annotation has changed, until the context ends.
func (b *Bound) Watch(ctx context.Context, changed func()) error {
	handler, err := b.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if matters(before.(*v1.Pod), after.(*v1.Pod)) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(ctx.Err(), b.informer.RemoveEventHandler(handler))
}
