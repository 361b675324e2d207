package kubernetes

import (
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Cache watches the functions of a cluster and their pods.
//
// While the API server is unreachable, the gateway goes on with the last state. When it is back, the informers list again and pass on the difference.
type Cache struct {
	cache     cache.Cache
	functions *Functions
	synced    []toolscache.InformerSynced
}

// NewCache returns a cache that passes the objects of a cluster on to functions.
func NewCache(config *rest.Config, functions *Functions, log *slog.Logger) (*Cache, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	// The mapper knows the kinds without discovery, so that the gateway can start before the API server answers.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(api.GroupVersion.WithKind(api.Kind), meta.RESTScopeNamespace)
	mapper.Add(api.GroupVersion.WithKind(api.FaSTPodKind), meta.RESTScopeNamespace)
	ofFunctions, err := labels.NewRequirement(api.LabelFunction, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	c, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper,
		ByObject: map[client.Object]cache.ByObject{
			&v1.Pod{}:          {Label: labels.NewSelector().Add(*ofFunctions), Transform: slimPod},
			&api.GPUFunction{}: {Transform: slimFunction},
			&api.FaSTPod{}:     {Transform: slimFastPod}, // without a label selector: if somebody removed the label, the FaSTPod's pods would get no requests
		},
		DefaultWatchErrorHandler: func(ctx context.Context, _ *toolscache.Reflector, err error) {
			if ctx.Err() == nil {
				log.Warn("watch of the API server ended, will begin again", "error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	w := &Cache{cache: c, functions: functions}
	return w, w.handle()
}

// handle registers event handlers that tell functions about all changes of objects.
func (c *Cache) handle() error {
	for object, handler := range map[client.Object]toolscache.ResourceEventHandlerFuncs{
		&v1.Pod{}: {
			AddFunc:    func(o any) { c.functions.SetPod(o.(*v1.Pod)) },
			UpdateFunc: func(_, o any) { c.functions.SetPod(o.(*v1.Pod)) },
			DeleteFunc: func(o any) { c.functions.DeletePod(keyOf(o)) },
		},
		&api.FaSTPod{}: {
			AddFunc:    func(o any) { c.functions.SetFastPod(o.(*api.FaSTPod)) },
			UpdateFunc: func(_, o any) { c.functions.SetFastPod(o.(*api.FaSTPod)) },
			DeleteFunc: func(o any) { c.functions.DeleteFastPod(keyOf(o)) },
		},
		&api.GPUFunction{}: {
			AddFunc:    func(o any) { c.functions.SetFunction(o.(*api.GPUFunction)) },
			UpdateFunc: func(_, o any) { c.functions.SetFunction(o.(*api.GPUFunction)) },
			DeleteFunc: func(o any) { c.functions.DeleteFunction(gateway.FunctionName(keyOf(o))) },
		},
	} {
		informer, err := c.cache.GetInformer(context.Background(), object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return nil
}

// keyOf returns the namespace and name of a deleted object, whose last state may be unknown.
func keyOf(object any) types.NamespacedName {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		namespace, name, _ := toolscache.SplitMetaNamespaceKey(unknown.Key) // cannot fail: the informer made the key
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return client.ObjectKeyFromObject(object.(client.Object))
}

// Run watches until ctx ends. Call it once.
func (c *Cache) Run(ctx context.Context) error {
	go func() {
		ticker := time.NewTicker(refreshPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.functions.Refresh()
			case <-ctx.Done():
				return
			}
		}
	}()
	return c.cache.Start(ctx)
}

// WaitForSync blocks until Synced, and returns false if ctx ends before that.
func (c *Cache) WaitForSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), c.synced...)
}

// Synced reports whether the gateway knows all functions and pods that existed when Run was called.
func (c *Cache) Synced() bool {
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// slimFunction removes from a GPUFunction what a gateway does not read.
func slimFunction(object any) (any, error) {
	if f, ok := object.(*api.GPUFunction); ok {
		f.ManagedFields, f.Annotations = nil, nil
	}
	return object, nil
}

// slimFastPod keeps of a FaSTPod only what identifies it and its owner.
func slimFastPod(object any) (any, error) {
	if fp, ok := object.(*api.FaSTPod); ok {
		return &api.FaSTPod{TypeMeta: fp.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: fp.Namespace, Name: fp.Name, UID: fp.UID, ResourceVersion: fp.ResourceVersion, OwnerReferences: fp.OwnerReferences,
		}}, nil
	}
	return object, nil
}

// slimPod keeps of a pod only what a gateway reads.
func slimPod(object any) (any, error) {
	p, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	slim := &v1.Pod{
		TypeMeta: p.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp,
			OwnerReferences: p.OwnerReferences,
			Labels:          pick(p.Labels, api.LabelFunction, api.LabelInstance),
			Annotations:     pick(p.Annotations, api.AnnotationDrain, api.AnnotationAtOnce, kube.AnnotationResidency, kube.AnnotationResidencyReached),
		},
		Status: v1.PodStatus{PodIP: p.Status.PodIP},
	}
	if len(p.Spec.Containers) > 0 {
		slim.Spec.Containers = []v1.Container{{Ports: p.Spec.Containers[0].Ports}}
	}
	slim.Spec.ReadinessGates = p.Spec.ReadinessGates
	read := []v1.PodConditionType{v1.PodReady, v1.ContainersReady}
	for _, gate := range p.Spec.ReadinessGates {
		read = append(read, gate.ConditionType)
	}
	for _, c := range p.Status.Conditions {
		if slices.Contains(read, c.Type) {
			slim.Status.Conditions = append(slim.Status.Conditions, c)
		}
	}
	return slim, nil
}

// pick returns the entries with the given keys.
func pick(from map[string]string, keys ...string) map[string]string {
	picked := map[string]string{}
	for _, key := range keys {
		if value, ok := from[key]; ok {
			picked[key] = value
		}
	}
	return picked
}
