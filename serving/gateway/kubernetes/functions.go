// Package kubernetes lets a gateway serve the GPUFunctions of a Kubernetes cluster: their pods, which gshare-controller makes, are the replicas.
//
// Functions says what objects mean for a gateway. Cache brings it the objects.
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

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Gateway is what Functions needs of a *gateway.Gateway.
type Gateway interface {
	SetFunction(gateway.Function) error
	RemoveFunction(gateway.FunctionName)
	SetReplicas(gateway.FunctionName, []gateway.Replica) error
	SetBackOff(name gateway.FunctionName, until time.Time, why string)
	SetHost(name, host gateway.FunctionName) error
	DropHost(name gateway.FunctionName)
	StartDrain(name gateway.FunctionName, replica string) <-chan struct{}
}

// Reports is what Functions needs of a *report.Server.
type Reports interface {
	SetDrained(name gateway.FunctionName, pods []string)
}

// Functions keeps a gateway at the state of the objects that it gets, in any order. Its methods may be called concurrently.
type Functions struct {
	gateway Gateway
	reports Reports
	log     *slog.Logger

	mu        sync.Mutex // guards what follows
	functions map[gateway.FunctionName]*function
	owners    map[types.NamespacedName]gateway.FunctionName // of pods
	fastPods  map[types.NamespacedName]fastPod
}

// fastPod is a FaSTPod of a function.
type fastPod struct {
	uid      types.UID
	function gateway.FunctionName
	owner    types.UID // of the function's object
}

// function is a function, or the pods of one whose object has not come yet.
type function struct {
	name       gateway.FunctionName
	uid        types.UID // of its object
	known      bool      // to the gateway
	credits    int       // of a replica
	external   bool      // another autoscaler scales it: its replicas are all pods with its label
	backingOff bool
	why        string               // it does
	invalid    string               // error of the last object, if it was not valid
	object     *api.GPUFunction     // the last valid one
	host       gateway.FunctionName // whose replicas serve the requests, too
	last       gateway.FunctionName // host that the gateway may still use, until the function has its own replicas
	pods       map[string]*pod
}

// pod is a pod and what the gateway does with it.
type pod struct {
	*v1.Pod
	gets    bool // requests
	leaving int  // drains that have not ended
}

// NewFunctions returns no functions.
func NewFunctions(g Gateway, r Reports, log *slog.Logger) *Functions {
	return &Functions{
		gateway: g, reports: r, log: log,
		functions: map[gateway.FunctionName]*function{}, owners: map[types.NamespacedName]gateway.FunctionName{},
		fastPods: map[types.NamespacedName]fastPod{},
	}
}

// SetFunction adds or changes a function. If the object is not valid, what is known of the function stays, but for its back-off.
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
	// A function without a share gets a whole GPU, whose size is nothing to a gateway.
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

// SetFastPod adds or changes a FaSTPod, whose pods are replicas of the function that controls it.
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

// updateOwned tells the gateway which pods of functions get requests whose FaSTPods have changed. The caller holds the mutex.
func (f *Functions) updateOwned(names ...gateway.FunctionName) {
	for _, name := range slices.Compact(names) {
		if fn := f.functions[name]; fn != nil {
			f.update(fn)
		}
	}
}

// refreshPeriod is the time between two calls of Refresh, and backOff how long clients of a function that is backing off are told to wait. The
// controller does not say when it starts a replica again, but it says when it does.
const (
	refreshPeriod = 5 * time.Second
	backOff       = 10 * time.Second
)

// Refresh moves on the time after which clients of functions that are backing off may try again, and takes requests from pods whose nodes have been silent
// for too long.
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

// forget removes a function of which nothing is left.
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

// has reports whether a pod with the label of the function is a replica of it: an instance of the controller, or any if another autoscaler scales the
// function. Others are somebody else's, and get no requests, whatever the names in their labels and owner references are: an instance is controlled by a
// FaSTPod that is there, which the function controls that is there.
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

// holdBack lets the gateway refuse requests to a function that is backing off.
func (f *Functions) holdBack(fn *function) {
	if fn.known && fn.backingOff {
		f.gateway.SetBackOff(fn.name, time.Now().Add(backOff), fn.why)
	}
}

// drain waits for the requests that a pod has which gets no new ones, whether it is to be drained or not yet: if it is later, it must not be
// reported while it has some.
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

// reportDrained lets the controller know the pods that it may end.
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

// isToDrain reports whether the pod is to get no new requests although it may be Ready: it is to be drained, deleted or parked.
func (p *pod) isToDrain() bool {
	_, drain := p.Annotations[api.AnnotationDrain]
	w, _ := p.levels()
	return drain || p.DeletionTimestamp != nil || !w.Level.Serves()
}

// residency returns when the pod gets requests: a Shared one, or one that is becoming Shared or Hot, when those that are Hot have no credit. So does one on
// a node that is silent: it serves, or its first request fails and others take it.
func (p *pod) residency() scaling.Residency {
	if w, r := p.levels(); min(w.Level, r.Level) >= residency.Hot && !api.OnSilentNode(p.Pod) {
		return scaling.Hot
	}
	return scaling.Shared
}

// maySend reports whether the pod may get requests at the levels that are wanted of it and that it has reached.
func (p *pod) maySend() bool {
	w, r := p.levels()
	return residency.MaySend(w, r)
}

// levels returns what the controller wants of the pod and what the agent of its node says. An agent that says nothing of a pod that is Ready is
// older than the levels: it leaves the pod Hot.
func (p *pod) levels() (residency.Wanted, residency.Reached) {
	w, r, _ := kube.ResidencyOf(p.Pod) // malformed annotations are as none
	if r == (residency.Reached{}) {
		r.Level = residency.Hot
	}
	return w, r
}
