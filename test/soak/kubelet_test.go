package soak_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The hollow nodes. Nobody accounts for what their GPUs hold, since it is part of the experiment that there is always room.
const (
	podsOfNode = 96
	gpusOfNode = 8
)

func nodeName(n int) string { return fmt.Sprintf("gpu-%d", n) }

func sliceName(node, gpu int) string {
	return fmt.Sprintf("GPU-5b2e3c1a-0000-4d2f-%04x-1f6c8e0d4a%02x", node, gpu)
}

// createNodes creates the nodes with their GPUs.
func (w *world) createNodes(t *testing.T) {
	t.Helper()
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(writers)
	for n := range w.nodes {
		var slices []kube.Slice
		for gpu := range gpusOfNode {
			slices = append(slices, kube.Slice{
				ID: sliceName(n, gpu), Device: sliceName(n, gpu), Model: "A100", SMs: 108, MemoryMiB: 80 << 10, Classes: []share.Isolation{share.MPS}, Healthy: true, MaxShares: 16,
			})
		}
		text, err := kube.EncodeInventory(kube.Inventory{Rules: &kube.Rules{GammaPercent: 150, Window: metav1.Duration{Duration: kube.DefaultWindow}}, Slices: slices})
		if err != nil {
			t.Fatal(err)
		}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(n), Annotations: map[string]string{kube.AnnotationInventory: text}}}
		node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("128"), v1.ResourceMemory: resource.MustParse("1Ti")}
		group.Go(func() error { return w.clients.objects.Create(ctx, node) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// kubelet plays the scheduler, and the kubelets and agents of all nodes: it binds pods, reports them as running and Ready, carries out their desired
// residency, and removes them when they are deleted.
type kubelet struct {
	client  kubernetes.Interface
	pods    listers.PodLister
	queue   workqueue.TypedRateLimitingInterface[string]
	nodes   int
	bound   atomic.Int64 // number of pods bound so far
	drained func(pod *v1.Pod, gone bool)

	mu      sync.Mutex
	isReady map[string]bool
}

// startKubelet starts a kubelet that runs until ctx ends.
func startKubelet(ctx context.Context, t *testing.T, c kubernetes.Interface, nodes int) *kubelet {
	t.Helper()
	k := &kubelet{
		client: c, nodes: nodes, isReady: map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, time.Second)),
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(thin), informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = api.LabelFaSTPod }))
	informer := factory.Core().V1().Pods()
	k.pods = informer.Lister()
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			k.queue.Add(key)
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*v1.Pod); ok {
				k.note(pod, false)
				k.drained(pod, true)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range writers {
		go k.work(ctx)
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	return k
}

// thin drops the parts of a pod that the fake kubelet does not need.
func thin(o any) (any, error) {
	if pod, ok := o.(*v1.Pod); ok {
		pod.ManagedFields, pod.Spec.Volumes, pod.Spec.Containers[0].Env, pod.Spec.Containers[0].VolumeMounts = nil, nil, nil, nil
	}
	return o, nil
}

func (k *kubelet) work(ctx context.Context) {
	for {
		key, stopped := k.queue.Get()
		if stopped {
			return
		}
		switch err := k.look(ctx, key); {
		case err == nil, apierrors.IsNotFound(err):
			k.queue.Forget(key)
		default: // usually a conflict, since the cache lags behind
			k.queue.AddRateLimited(key)
		}
		k.queue.Done(key)
	}
}

// look takes the next step for a pod.
func (k *kubelet) look(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	pod, err := k.pods.Pods(namespace).Get(name)
	if err != nil {
		return err
	}
	pods := k.client.CoreV1().Pods(namespace)
	k.note(pod, pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil)
	if _, drains := pod.Annotations[api.AnnotationDrain]; drains {
		k.drained(pod, false)
	}
	wanted, reached, err := kube.ResidencyOf(pod)
	switch {
	case err != nil:
		return err
	case pod.DeletionTimestamp != nil:
		return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Spec.NodeName == "":
		return k.bind(ctx, pod)
	case pod.Status.Phase != v1.PodRunning:
		_, err := pods.Patch(ctx, name, types.StrategicMergePatchType, running(pod), metav1.PatchOptions{}, "status")
		return err
	case !reached.Answers(wanted):
		text, err := residency.Reached{Seq: wanted.Seq, Level: wanted.Level}.Encode()
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, name, types.JSONPatchType, kube.ResidencyReachedPatch(pod, text), metav1.PatchOptions{})
		return err
	}
	return nil
}

// bind binds a pod to the next node in turn.
func (k *kubelet) bind(ctx context.Context, pod *v1.Pod) error {
	request, asks, err := kube.RequestOf(pod)
	if err != nil || !asks {
		return errors.Join(err, fmt.Errorf("pod %s asks for a share: %v", pod.Name, asks))
	}
	n := int(k.bound.Add(1))
	node := n % k.nodes
	c := request.Containers[0]
	binding, err := kube.MakeBinding(pod, nodeName(node), kube.Placement{Node: nodeName(node), UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name:  pod.Spec.Containers[0].Name,
		VGPUs: []kube.PlacedVGPU{{Slice: sliceName(node, n/k.nodes%gpusOfNode), Class: share.MPS, Priority: request.Priority, Share: c.Share}},
	}}})
	if err != nil {
		return err
	}
	return k.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// running returns the patch by which a kubelet reports a pod as running and Ready.
func running(pod *v1.Pod) []byte {
	now := time.Now().UTC().Format(time.RFC3339)
	condition := func(name string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","lastProbeTime":null,"lastTransitionTime":%q}`, name, now)
	}
	c := pod.Spec.Containers[0]
	ip := addressOf(pod.UID)
	return fmt.Appendf(nil, `{"status":{"phase":"Running","hostIP":"10.1.0.1","podIP":%q,"podIPs":[{"ip":%q}],"startTime":%q,"conditions":[%s,%s,%s,%s],
"containerStatuses":[{"name":%q,"image":%q,"imageID":"sha256:0f1e","containerID":"containerd://%s","ready":true,"started":true,"restartCount":0,"state":{"running":{"startedAt":%q}}}]}}`,
		ip, ip, now, condition("PodReadyToStartContainers"), condition("Initialized"), condition("ContainersReady"), condition("Ready"), c.Name, c.Image, pod.UID, now)
}

// addressOf returns an address for a pod that most likely no other pod has.
func addressOf(uid types.UID) string {
	var sum uint32
	for _, c := range []byte(uid) {
		sum = sum*31 + uint32(c)
	}
	return fmt.Sprintf("10.%d.%d.%d", 2+sum>>16%250, sum>>8%256, 1+sum%250)
}

// note keeps track of which pods are Ready.
func (k *kubelet) note(pod *v1.Pod, ready bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ready {
		k.isReady[string(pod.UID)] = true
	} else {
		delete(k.isReady, string(pod.UID))
	}
}

func (k *kubelet) ready() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.isReady)
}
