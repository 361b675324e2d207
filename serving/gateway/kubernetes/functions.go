// Package kubernetes makes a gateway serve the GPUFunctions of a Kubernetes cluster. The replicas are their pods, which gshare-controller creates.
//
// Functions translates objects into calls of the gateway. Cache delivers the objects.
package kubernetes

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Gateway is the part of *gateway.Gateway that Functions needs.
type Gateway interface {
	SetFunction(gateway.Function) error
	RemoveFunction(gateway.FunctionName)
	SetReplicas(gateway.FunctionName, []gateway.Replica) error
	SetBackOff(name gateway.FunctionName, until time.Time, why string)
	SetHost(name, host gateway.FunctionName) error
	DropHost(name gateway.FunctionName)
	StartDrain(name gateway.FunctionName, replica string) <-chan struct{}
}

// Reports is the part of *report.Server that Functions needs.
type Reports interface {
	SetDrained(name gateway.FunctionName, pods []string)
}

// Functions keeps a gateway in step with the objects that it receives, in whatever order. Its methods may be called concurrently.
type Functions struct {
	gateway Gateway
	reports Reports
	log     *slog.Logger

	mu        sync.Mutex // guards what follows
	functions map[gateway.FunctionName]*function
	owners    map[types.NamespacedName]gateway.FunctionName // of pods
	fastPods  map[types.NamespacedName]fastPod
}

// fastPod is what Functions knows about a FaSTPod.
type fastPod struct {
	uid      types.UID
	function gateway.FunctionName
	owner    types.UID // UID of the GPUFunction that controls it
}

// function is a function, or only the pods of one whose object has not come yet.
type function struct {
	name       gateway.FunctionName
	uid        types.UID // of its object
	known      bool      // the gateway has this function
	credits    int       // of a replica
	external   bool      // another autoscaler scales it: its replicas are all pods with its label
	backingOff bool
	why        string               // reason of the back-off
	invalid    string               // error of the latest object, if that was not valid
	object     *api.GPUFunction     // the latest valid object
	host       gateway.FunctionName // the function whose replicas serve the requests, too
	last       gateway.FunctionName // the present or previous host: the gateway may use it until the function has its own replicas
	pods       map[string]*pod
}

// pod is a pod and what the gateway does with it at present.
type pod struct {
	*v1.Pod
	gets    bool // it gets requests
	leaving int  // number of drains that have not ended
}

// NewFunctions returns Functions that have received no objects.
func NewFunctions(g Gateway, r Reports, log *slog.Logger) *Functions {
	return &Functions{
		gateway: g, reports: r, log: log,
		functions: map[gateway.FunctionName]*function{}, owners: map[types.NamespacedName]gateway.FunctionName{},
		fastPods: map[types.NamespacedName]fastPod{},
	}
}

// SetFunction adds or changes a function. If the object is not valid, only the function's back-off is taken from it.
func (f *Functions) SetFunction(object *api.GPUFunction) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.function(gateway.FunctionName{Namespace: object.Namespace, Name: object.Name})
	fn.uid = object.UID
	if err := f.configure(fn, object); err == nil {
		fn.invalid = ""
	} else if fn.invalid != err.Error() {
		fn.invalid = err.Error()
		f.log.Error("function is not valid", "function", fn.name.String(), "error", err)
	}
	c := meta.FindStatusCondition(object.Status.Conditions, api.ConditionBackingOff)
	backingOff := c != nil && c.Status == "True"
	if backingOff {
		fn.why = c.Message
	}
	ended := fn.backingOff && !backingOff
	fn.backingOff = backingOff
	f.update(fn)
	f.setHosts(fn)
	if ended && fn.known {
		f.gateway.SetBackOff(fn.name, time.Time{}, "")
	}
}

// configure makes a function known to the gateway, as its object describes it.
func (f *Functions) configure(fn *function, object *api.GPUFunction) error {
	// A function without a share gets a whole GPU; its size does not matter to a gateway.
	complete, err := object.CompleteForCluster(1024 * share.MiB)
	if err != nil {
		return err
	}
	if err := f.gateway.SetFunction(fleet.GatewayFunction(complete)); err != nil {
		return err
	}
	if !fn.known {
		f.log.Info("function is served", "function", fn.name.String())
	}
	fn.known, fn.credits, fn.external, fn.object = true, *complete.Spec.Scaling.Concurrency, complete.External(), complete
	return nil
}

// DeleteFunction removes a function.
func (f *Functions) DeleteFunction(name gateway.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.functions[name]
	if fn == nil {
		return
	}
	for _, p := range fn.pods {
		if p.gets {
			f.drain(fn, p)
		}
		p.gets = false
	}
	if fn.known {
		f.log.Info("function is not served any more", "function", name.String())
		f.reports.SetDrained(name, nil)
		f.gateway.RemoveFunction(name)
	}
	fn.known, fn.invalid, fn.uid, fn.object, fn.host, fn.last = false, "", "", nil, gateway.FunctionName{}, gateway.FunctionName{}
	f.setHosts(fn)
	f.forget(fn)
}

// SetPod adds or changes a pod with the label of a function.
func (f *Functions) SetPod(object *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	name := gateway.FunctionName{Namespace: object.Namespace, Name: object.Labels[api.LabelFunction]}
	if owner, ok := f.owners[key]; ok && (owner != name || f.functions[owner].pods[object.Name].UID != object.UID) {
		f.deletePod(key)
	}
	f.owners[key] = name
	fn := f.function(name)
	if p := fn.pods[object.Name]; p != nil {
		p.Pod = object
	} else {
		fn.pods[object.Name] = &pod{Pod: object}
	}
	f.update(fn)
}

// DeletePod removes a pod.
func (f *Functions) DeletePod(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deletePod(key)
}

func (f *Functions) deletePod(key types.NamespacedName) {
	fn := f.functions[f.owners[key]]
	if fn == nil {
		return
	}
	delete(f.owners, key)
	delete(fn.pods, key.Name)
	f.update(fn)
	f.forget(fn)
}

// SetFastPod adds or changes a FaSTPod. Its pods are replicas of the function that controls it.
func (f *Functions) SetFastPod(object *api.FaSTPod) {
	now := fastPod{uid: object.UID}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == api.Kind {
		now.function, now.owner = gateway.FunctionName{Namespace: object.Namespace, Name: owner.Name}, owner.UID
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	before := f.fastPods[key]
	if f.fastPods[key] = now; before == now {
		return
	}
	f.updateOwned(before.function, now.function)
}

// DeleteFastPod removes a FaSTPod.
func (f *Functions) DeleteFastPod(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.fastPods[key]
	delete(f.fastPods, key)
	f.updateOwned(before.function)
}

// updateOwned tells the gateway which pods get requests, for functions whose FaSTPods have changed. The caller holds the mutex.
func (f *Functions) updateOwned(names ...gateway.FunctionName) {
	for _, name := range slices.Compact(names) {
		if fn := f.functions[name]; fn != nil {
			f.update(fn)
		}
	}
}

// refreshPeriod is the time between two calls of Refresh. backOff is how long clients of a function that is backing off are told to wait: the
// controller does not announce when it will start a replica again, only that it has.
const (
	refreshPeriod = 5 * time.Second
	backOff       = 10 * time.Second
)

// Refresh extends the time after which clients of functions that are backing off may try again, and takes requests away from pods whose nodes have
// been silent too long.
func (f *Functions) Refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fn := range f.functions {
		for _, p := range fn.pods {
			if p.gets && !p.serves() {
				f.update(fn)
				break
			}
		}
		f.holdBack(fn)
	}
}

func (f *Functions) function(name gateway.FunctionName) *function {
	fn := f.functions[name]
	if fn == nil {
		fn = &function{name: name, pods: map[string]*pod{}}
		f.functions[name] = fn
	}
	return fn
}

// forget removes a function about which nothing is left to know.
func (f *Functions) forget(fn *function) {
	if !fn.known && fn.invalid == "" && len(fn.pods) == 0 {
		delete(f.functions, fn.name)
	}
}

// update tells the gateway which pods of a function get requests.
func (f *Functions) update(fn *function) {
	if !fn.known {
		return
	}
	var replicas []gateway.Replica
	for _, name := range slices.Sorted(maps.Keys(fn.pods)) {
		p := fn.pods[name]
		address, _ := api.Address(p.Pod)
		gets := p.serves() && !p.isToDrain() && p.maySend() && f.has(fn, p)
		switch {
		case gets:
			replicas = append(replicas, gateway.Replica{ID: name, Address: address, Residency: p.residency(), Credits: fn.credits * api.AtOnce(p.Pod)})
		case p.gets:
			f.drain(fn, p) // before SetReplicas, after which the gateway would not find it
		}
		if gets != p.gets {
			f.log.Info(map[bool]string{true: "replica gets requests", false: "replica gets no new requests"}[gets], "function", fn.name.String(), "pod", name)
		}
		p.gets = gets
	}
	if err := f.gateway.SetReplicas(fn.name, replicas); err != nil {
		f.log.Error("failed to set the replicas", "function", fn.name.String(), "error", err)
	}
	f.holdBack(fn)
	f.reportDrained(fn)
}

// has reports whether a pod with the label of the function is a replica of it: an instance that the controller has made, or any such pod if another
// autoscaler scales the function. Names in labels and owner references are not enough, since anybody can write them: an instance is controlled by an
// existing FaSTPod, which the existing function controls, by UID. Other pods get no requests.
func (f *Functions) has(fn *function, p *pod) bool {
	if fn.external {
		return true
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != api.FaSTPodKind || p.Labels[api.LabelInstance] == "" {
		return false
	}
	of, ok := f.fastPods[types.NamespacedName{Namespace: p.Namespace, Name: owner.Name}]
	return ok && of.uid == owner.UID && of.function == fn.name && of.owner == fn.uid
}

// holdBack makes the gateway refuse requests to a function that is backing off.
func (f *Functions) holdBack(fn *function) {
	if fn.known && fn.backingOff {
		f.gateway.SetBackOff(fn.name, time.Now().Add(backOff), fn.why)
	}
}

// drain waits until a pod that gets no new requests has answered those that it has, even if it is not to be drained: if it is to be drained later, it
// must not be reported as drained while it still has requests.
func (f *Functions) drain(fn *function, p *pod) {
	done := f.gateway.StartDrain(fn.name, p.Name)
	select {
	case <-done:
		return
	default:
	}
	p.leaving++
	go func() {
		<-done
		f.mu.Lock()
		defer f.mu.Unlock()
		p.leaving--
		if f.functions[fn.name] == fn && fn.known {
			f.reportDrained(fn)
		}
	}()
}

// reportDrained tells the controller which pods it may end.
func (f *Functions) reportDrained(fn *function) {
	var drained []string
	for name, p := range fn.pods {
		if p.isToDrain() && p.leaving == 0 {
			drained = append(drained, name)
			if w, _ := p.levels(); w.Level == residency.Warm {
				drained = append(drained, report.Stopped(name, w.Seq))
			}
		}
	}
	slices.Sort(drained)
	f.reports.SetDrained(fn.name, drained)
}

// isToDrain reports whether the pod is to get no new requests even if it is Ready, because it is being drained, deleted or parked.
func (p *pod) isToDrain() bool {
	_, drain := p.Annotations[api.AnnotationDrain]
	w, _ := p.levels()
	return drain || p.DeletionTimestamp != nil || !w.Level.Serves()
}

// residency returns how the gateway prefers the pod. A pod that is Shared, or is becoming Shared or Hot, gets requests only when Hot pods have no
// free credit. The same goes for a pod on a silent node: either it serves, or its first request fails and other pods take over.
func (p *pod) residency() scaling.Residency {
	if w, r := p.levels(); min(w.Level, r.Level) >= residency.Hot && !api.OnSilentNode(p.Pod) {
		return scaling.Hot
	}
	return scaling.Shared
}

// maySend reports whether the pod may get requests at the levels that it is wanted at and has reached.
func (p *pod) maySend() bool {
	w, r := p.levels()
	return residency.MaySend(w, r)
}

// levels returns the level that the controller wants for the pod and the one that the agent of its node reports. If the pod is Ready and the agent
// reports nothing, the agent is older than the levels and leaves the pod Hot.
func (p *pod) levels() (residency.Wanted, residency.Reached) {
	w, r, _ := kube.ResidencyOf(p.Pod) // malformed annotations count as none
	if r == (residency.Reached{}) {
		r.Level = residency.Hot
	}
	return w, r
}
