package agent

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
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

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Cluster is what the agent needs of the API server. The API server may be unreachable at any time: no container start waits for it.
type Cluster interface {
	// Published returns the inventory that the node has published.
	Published(context.Context) (kube.Inventory, error)
	// Publish writes the node's inventory and its resources. keep limits how far they shrink, see kube.CapacityPatch.
	Publish(ctx context.Context, inventory string, resources, keep v1.ResourceList) error
	// WatchNode calls changed whenever the node object may have changed, until the context ends. It does not block.
	WatchNode(ctx context.Context, changed func())
	// WriteEnforcement writes the enforcement status of a pod.
	WriteEnforcement(ctx context.Context, pod types.NamespacedName, uid types.UID, text string) error
	// WriteClaimStatus writes the status of a resource claim's devices of driver gshare.dev.
	WriteClaimStatus(ctx context.Context, claim types.NamespacedName, uid types.UID, devices []resourceapi.AllocatedDeviceStatus) error
	// WriteResidency writes the level that a pod has reached, if both residency annotations of the pod are still those of the given version.
	WriteResidency(ctx context.Context, pod *v1.Pod, text string) error
	// Evict evicts a pod if its disruption budget allows.
	Evict(ctx context.Context, pod types.NamespacedName, uid types.UID) error
	// Warn and Notify write an event of type Warning or Normal on a pod.
	Warn(pod *v1.Pod, reason, text string)
	Notify(pod *v1.Pod, reason, text string)
}

// APIServer implements Cluster by a client of the node's API server.
type APIServer struct {
	client kubernetes.Interface
	node   string
	events record.EventRecorder
	lister cache.Store // holds the Node object, once it is watched
}

// NewAPIServer returns the Cluster for the named node. It sends events until the context ends.
func NewAPIServer(ctx context.Context, client kubernetes.Interface, node string) *APIServer {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &APIServer{
		client: client, node: node,
		events: broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "gshare-node", Host: node}),
	}
}

// requestTimeout bounds one request to the API server.
const requestTimeout = 10 * time.Second

// Published returns the inventory of GPU slices in the annotation of the Node object.
func (s *APIServer) Published(ctx context.Context) (kube.Inventory, error) {
	node, err := s.get(ctx)
	if err != nil {
		return kube.Inventory{}, err
	}
	inv, _, err := kube.InventoryOf(node)
	return inv, err
}

// get returns the Node object: from the informer's cache once that has synced, else from the API server.
func (s *APIServer) get(ctx context.Context) (*v1.Node, error) {
	if s.lister != nil {
		if node, ok, _ := s.lister.GetByKey(s.node); ok {
			return node.(*v1.Node), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.client.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
}

// Publish writes the inventory annotation and the extended resources of the Node object, where they differ. keep is passed to
// kube.CapacityPatch.
func (s *APIServer) Publish(ctx context.Context, inventory string, resources, keep v1.ResourceList) error {
	node, err := s.get(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// The capacity is written first: pods are admitted by it, and placed by the inventory.
	if patch := kube.CapacityPatch(node, resources, keep); patch != nil {
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

// WatchNode calls changed whenever the Node object may have changed, until the context ends. It does not block.
func (s *APIServer) WatchNode(ctx context.Context, changed func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.node).String()
	}))
	informer := factory.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() },
	})
	if err != nil {
		return // fails only after the informer has ended
	}
	s.lister = informer.GetStore()
	factory.Start(ctx.Done())
}

// WriteEnforcement writes the enforcement status of a pod as its annotation. It returns nil if the pod with this UID no longer exists, and if the pod's
// annotations are full: whoever may change the pod can fill them, and would have the agent write again each second for as long as the pod is there.
func (s *APIServer) WriteEnforcement(ctx context.Context, pod types.NamespacedName, uid types.UID, text string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch := kube.AnnotationPatchForUID(string(uid), kube.AnnotationEnforcementStatus, text)
	_, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) {
		return nil
	}
	return ignoreGone(err)
}

// WriteClaimStatus writes the status of a resource claim's devices of driver gshare.dev. The error is nil if the claim no longer exists.
func (s *APIServer) WriteClaimStatus(
	ctx context.Context, claim types.NamespacedName, uid types.UID, devices []resourceapi.AllocatedDeviceStatus,
) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := draplugin.StatusPatch(claim, uid, devices)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: "gshare-node", Force: new(true)}
	_, err = s.client.ResourceV1().ResourceClaims(claim.Namespace).Patch(ctx, claim.Name, types.ApplyPatchType, patch, options, "status")
	return ignoreGone(err)
}

// WriteResidency writes the annotation with the level that a pod has reached. The error has reason Invalid if the wanted or the reached
// level differs from that in the given version of the pod. It is nil if the pod no longer exists.
func (s *APIServer) WriteResidency(ctx context.Context, pod *v1.Pod, text string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch := kube.ResidencyReachedPatch(pod, text)
	_, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ignoreGone returns nil for the API errors that mean that a pod no longer exists, and every other error unchanged.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Evict requests the eviction of a pod, which its disruption budget may forbid. It returns nil if the pod with this UID no longer exists.
func (s *APIServer) Evict(ctx context.Context, pod types.NamespacedName, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := s.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policy.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if apierrors.IsTooManyRequests(err) {
		return errors.New("the disruption budget of the pod does not allow it now")
	}
	return ignoreGone(err)
}

// Warn writes an event of type Warning on a pod.
func (s *APIServer) Warn(pod *v1.Pod, reason, text string) {
	s.events.Event(pod, v1.EventTypeWarning, reason, text)
}

// Notify writes an event of type Normal on a pod.
func (s *APIServer) Notify(pod *v1.Pod, reason, text string) {
	s.events.Event(pod, v1.EventTypeNormal, reason, text)
}
