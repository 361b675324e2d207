package kubernetes

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Gateways watches the pods of all gateways of a cluster. While the API server is unreachable, the last known ones stay: it is not what decides
// whether a gateway serves.
type Gateways struct {
	cache  cache.Cache
	port   int
	set    func(map[string]string)
	synced toolscache.InformerSynced

	mu        sync.Mutex // guards what follows
	addresses map[string]string
}

// NewGateways returns a watch of the pods in a namespace that match a label selector. Whenever they change, set is called with the address of each,
// host:port, by name.
func NewGateways(config *rest.Config, namespace, selector string, port int, set func(map[string]string), log *slog.Logger) (*Gateways, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil) // as in NewCache
	mapper.Add(v1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	selected, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	c, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{&v1.Pod{}: {Label: selected, Transform: slimGateway}},
		DefaultWatchErrorHandler: func(ctx context.Context, _ *toolscache.Reflector, err error) {
			if ctx.Err() == nil {
				log.Warn("watch of the gateways ended, will begin again", "error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	g := &Gateways{cache: c, port: port, set: set, addresses: map[string]string{}}
	informer, err := c.GetInformer(context.Background(), &v1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { g.setPod(o.(*v1.Pod)) },
		UpdateFunc: func(_, o any) { g.setPod(o.(*v1.Pod)) },
		DeleteFunc: func(o any) { g.deletePod(keyOf(o)) },
	})
	if err != nil {
		return nil, err
	}
	g.synced = registration.HasSynced
	return g, nil
}

// Run watches until ctx ends. Call it once.
func (g *Gateways) Run(ctx context.Context) error { return g.cache.Start(ctx) }

// WaitForSync blocks until the gateways that existed when Run was called are known, and returns false if ctx ends before that.
func (g *Gateways) WaitForSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), g.synced)
}

// setPod records a gateway whether it is ready or not, since pings find out whether it serves. A gateway whose containers have ended cannot serve.
func (g *Gateways) setPod(p *v1.Pod) {
	address := ""
	if p.Status.PodIP != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		address = net.JoinHostPort(p.Status.PodIP, strconv.Itoa(g.port))
	}
	g.change(p.Name, address)
}

func (g *Gateways) deletePod(key types.NamespacedName) { g.change(key.Name, "") }

func (g *Gateways) change(name, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.addresses[name] == address:
		return
	case address == "":
		delete(g.addresses, name)
	default:
		g.addresses[name] = address
	}
	g.set(g.addresses)
}

// slimGateway keeps of a pod only what Gateways reads.
func slimGateway(object any) (any, error) {
	p, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	return &v1.Pod{
		TypeMeta:   p.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
		Status:     v1.PodStatus{PodIP: p.Status.PodIP, Phase: p.Status.Phase},
	}, nil
}
