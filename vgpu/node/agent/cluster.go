package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Cluster is what the agent tells the API server. It may be away: nothing that containers need waits for it.
type Cluster interface {
	// Published reads the inventory that the node had published.
	Published(context.Context) (kube.Inventory, error)
	// Publish makes the node say what it has. keep says that nothing may shrink.
	Publish(ctx context.Context, inventory string, has v1.ResourceList, keep bool) error
	// Changed calls back whenever the node may say something else.
	Changed(ctx context.Context, changed func())
	// Enforced writes the enforcement status of a pod.
	Enforced(ctx context.Context, pod types.NamespacedName, uid types.UID, text string) error
	// Evict ends a pod as its disruption budget allows.
	Evict(ctx context.Context, pod types.NamespacedName, uid types.UID) error
	// Warn and Tell write an event on a pod.
	Warn(pod *v1.Pod, reason, text string)
	Tell(pod *v1.Pod, reason, text string)
}

// APIServer is the cluster of an agent's node.
type APIServer struct {
	client kubernetes.Interface
	node   string
	events record.EventRecorder
	lister cache.Store
}

// NewAPIServer makes the connection; events are sent until the context ends.
func NewAPIServer(ctx context.Context, client kubernetes.Interface, node string, log *slog.Logger) *APIServer {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &APIServer{
		client: client, node: node,
		events: broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "gshare-node", Host: node}),
	}
}

// requestLimit bounds one request.
const requestLimit = 10 * time.Second

// Published implements Cluster.
func (s *APIServer) Published(ctx context.Context) (kube.Inventory, error) {
	node, err := s.get(ctx)
	if err != nil {
		return kube.Inventory{}, err
	}
	inv, _, err := kube.InventoryOf(node)
	return inv, err
}

// get reads the node, from what is watched where that is in step.
func (s *APIServer) get(ctx context.Context) (*v1.Node, error) {
	if s.lister != nil {
		if node, ok, _ := s.lister.GetByKey(s.node); ok {
			return node.(*v1.Node), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return s.client.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
}

// Publish implements Cluster.
func (s *APIServer) Publish(ctx context.Context, inventory string, has v1.ResourceList, keep bool) error {
	node, err := s.get(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	// First what pods are admitted by, then what they are placed by.
	if patch := kube.CapacityPatch(node, has, keep); patch != nil {
		if _, err := s.client.CoreV1().Nodes().Patch(ctx, s.node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	if node.Annotations[kube.AnnotationInventory] == inventory {
		return nil
	}
	patch := kube.AnnotationPatch(kube.AnnotationInventory, inventory)
	_, err = s.client.CoreV1().Nodes().Patch(ctx, s.node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Changed implements Cluster.
func (s *APIServer) Changed(ctx context.Context, changed func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.node).String()
	}))
	informer := factory.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() },
	})
	if err != nil {
		return // only after the informer has ended
	}
	s.lister = informer.GetStore()
	factory.Start(ctx.Done())
}

// Enforced implements Cluster.
func (s *APIServer) Enforced(ctx context.Context, pod types.NamespacedName, uid types.UID, text string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	patch := kube.OwnedPatch(string(uid), kube.AnnotationEnforcementStatus, text)
	_, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return gone(err)
}

// gone makes nothing of an error that says that the pod is not there any more.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Evict implements Cluster.
func (s *APIServer) Evict(ctx context.Context, pod types.NamespacedName, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	err := s.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policy.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if apierrors.IsTooManyRequests(err) {
		return errors.New("its disruption budget does not allow it now")
	}
	return gone(err)
}

// Warn implements Cluster.
func (s *APIServer) Warn(pod *v1.Pod, reason, text string) {
	s.events.Event(pod, v1.EventTypeWarning, reason, text)
}

// Tell implements Cluster.
func (s *APIServer) Tell(pod *v1.Pod, reason, text string) {
	s.events.Event(pod, v1.EventTypeNormal, reason, text)
}
