package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Pods is the fleet.Platform of a cluster: each instance is a pod. An instance has failed if its pod ends or somebody else deletes it, but not if the
// kubelet restarts a container.
type Pods struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	log      *slog.Logger
	events   chan fleet.Event
	queue    workqueue.TypedRateLimitingInterface[string] // names of instances that may have changed
	quotas   *Quotas
	onNodes  *nodePods
	// waitStopped returns when every gateway has stopped sending requests to a pod, as the residency.Wanted with sequence number seq demands, or when
	// ctx ends.
	waitStopped func(ctx context.Context, function gateway.FunctionName, pod string, seq int64) error

	mu        sync.Mutex
	instances map[string]*podInstance
	inTurn    map[string]*podInstance // those that take turns on GPUs
}

// podInstance is an instance from its creation to its end. The lock of Pods guards its fields. Only reconcile writes pod and uid, and for each name
// it runs only once at a time; fields "only for reconcile" need no lock.
type podInstance struct {
	fleet.Instance                  // with the residency that the fleet wants
	pod            client.ObjectKey // empty until it has been created
	uid            types.UID
	deleted        bool        // the fleet has called Delete
	silent         bool        // no events may be reported yet
	reported       fleet.Event // the last event reported; only for reconcile
	refused        int64       // residency.Wanted.Seq of the last refused change that the fleet knows about; only for reconcile
	asked          int64       // Seq for which the gateways were asked to stop; only for reconcile
	stopAsk        context.CancelFunc
	stopped        int64            // Seq for which the gateways have stopped
	parked         time.Time        // when it was last parked, or may have been; only for reconcile
	attempted      client.ObjectKey // the pod last attempted, which may exist although no answer came; only for reconcile
	cuts           triedCuts        // if its function has a pipeline; only for reconcile
	turn           turn             // if it takes turns
}

// NewPods returns a platform without instances.
func NewPods(c client.Client, live client.Reader, recorder events.EventRecorder, log *slog.Logger) *Pods {
	return &Pods{
		client: c, live: live, recorder: recorder, log: log, events: make(chan fleet.Event), instances: map[string]*podInstance{}, inTurn: map[string]*podInstance{},
		quotas: NewQuotas(c, live), onNodes: &nodePods{live: live}, waitStopped: func(ctx context.Context, _ gateway.FunctionName, _ string, _ int64) error {
			<-ctx.Done() // the gateways are not known
			return ctx.Err()
		},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second)),
	}
}

// Events implements fleet.Platform.
func (p *Pods) Events() <-chan fleet.Event { return p.events }

// Create implements fleet.Platform.
func (p *Pods) Create(i fleet.Instance) {
	p.add(&podInstance{Instance: i})
}

// Adopt makes an instance of an existing pod. No events of it are reported before Report is called.
func (p *Pods) Adopt(i fleet.Instance, pod *v1.Pod) {
	p.add(&podInstance{Instance: i, pod: client.ObjectKeyFromObject(pod), uid: pod.UID, silent: true, parked: time.Now(), turn: turn{adopted: takesTurns(pod)}})
}

// Report allows events of an instance that was adopted.
func (p *Pods) Report(name string) {
	p.mu.Lock()
	if i := p.instances[name]; i != nil {
		i.silent = false
	}
	p.mu.Unlock()
	p.queue.Add(name)
}

func (p *Pods) add(i *podInstance) {
	p.mu.Lock()
	p.instances[i.Name] = i
	if i.turn.adopted || i.Function.InTurn() {
		p.inTurn[i.Name] = i
	} else {
		delete(p.inTurn, i.Name)
	}
	p.mu.Unlock()
	p.queue.Add(i.Name)
}

// Delete implements fleet.Platform.
func (p *Pods) Delete(name string) {
	p.mu.Lock()
	if i := p.instances[name]; i != nil {
		i.deleted = true
	}
	p.mu.Unlock()
	p.queue.Add(name)
}

// setResidency sets the residency of an instance, which its pod's annotation is to show. It has no effect if there is no such instance.
func (p *Pods) setResidency(name string, r scaling.Residency) {
	p.mu.Lock()
	i := p.instances[name]
	changed := i != nil && i.Residency != r
	if changed {
		i.Residency = r
	}
	p.mu.Unlock()
	if changed {
		p.queue.Add(name)
	}
}

// keyOf returns the pod of an instance.
func (p *Pods) keyOf(name string) (key client.ObjectKey, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.instances[name]; i != nil && i.uid != "" {
		return i.pod, true
	}
	return client.ObjectKey{}, false
}

// watch queues the instances of the pods in a cache whenever these change.
func (p *Pods) watch(c crcache.Cache) error {
	informer, err := c.GetInformer(context.Background(), &v1.Pod{}, crcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(p.handler())
	return err
}

// handler returns the handler of events of functions' pods. A pod that has lost the labels of an instance is looked at once more. Only existing
// instances are queued: a process that waits to become the leader takes nothing from the queue.
func (p *Pods) handler() cache.ResourceEventHandler {
	changed := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if pod, ok := object.(*v1.Pod); ok {
			if function, id, err := instanceOf(pod); err == nil { // else it belongs to a FaSTPod without a function
				p.look(fleet.InstanceName(gateway.FunctionName{Namespace: pod.Namespace, Name: function}, scaling.ID(id)))
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(before, now any) { changed(before); changed(now) }, DeleteFunc: changed}
}

// look queues an instance if there is one with this name.
func (p *Pods) look(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.instances[name] != nil {
		p.queue.Add(name)
	}
}

// workers is the number of instances that are reconciled at the same time: a request to the API server that takes long, for instance because a
// webhook is called, does not hold up the instances of other functions.
const workers = 8

// Run carries out what the fleet wants, until ctx ends.
func (p *Pods) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { p.work(ctx) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	all.Wait()
}

func (p *Pods) work(ctx context.Context) {
	for {
		name, stopped := p.queue.Get()
		if stopped {
			return
		}
		if err := p.reconcile(ctx, name); err != nil {
			p.log.Warn("failed to reconcile replica", "replica", name, "error", err)
			p.queue.AddRateLimited(name)
		} else {
			p.queue.Forget(name)
		}
		p.queue.Done(name)
	}
}

func (p *Pods) reconcile(ctx context.Context, name string) error {
	p.mu.Lock()
	i := p.instances[name]
	var deleted bool
	var level scaling.Residency
	if i != nil {
		deleted, level = i.deleted, i.Residency
	}
	ignore := i == nil || i.silent // it has ended and its pod is being removed, or the fleet does not know it yet
	p.mu.Unlock()
	switch {
	case ignore:
		return nil
	case i.uid == "" && deleted:
		if err := p.deleteAttempted(ctx, i); err != nil {
			return err
		}
		return p.end(ctx, i, fleet.Gone, "was deleted before it had a pod")
	case i.uid == "":
		if err := p.create(ctx, i); cannotMove(i, err) {
			return p.end(ctx, i, fleet.Failed, err.Error())
		} else if OverQuota(err) != "" {
			p.report(ctx, i, fleet.Event{Kind: fleet.Starting, Message: p.quotas.refuse(p.recorder, i, OverQuota(err))})
			p.queue.AddAfter(name, quotaPause)
			return nil
		} else if isRefused(err) {
			why := fmt.Sprintf("its pod cannot be created: %v", err)
			p.recorder.Eventf(i.Function, nil, v1.EventTypeWarning, eventFailedCreate, "Create", "%s", shortened(fmt.Sprintf("Replica %s: %s", name, why), maxNote))
			return p.end(ctx, i, fleet.Failed, why)
		} else if err != nil {
			p.report(ctx, i, fleet.Event{Kind: fleet.Starting, Message: fmt.Sprintf("its pod cannot be created: %v", err)})
			return err
		}
	}
	pod, err := p.podOf(ctx, i)
	switch {
	case err != nil:
		return err
	case pod == nil && deleted:
		return p.end(ctx, i, fleet.Gone, "has ended")
	case pod == nil:
		return p.end(ctx, i, fleet.Failed, "its pod has been deleted")
	case deleted && !isInstance(pod, i):
		return p.end(ctx, i, fleet.Gone, takenAway)
	case !isInstance(pod, i):
		return p.end(ctx, i, fleet.Failed, takenAway)
	case deleted && pod.DeletionTimestamp == nil:
		return p.delete(ctx, pod)
	case deleted: // when the pod has gone, that is an event
		return nil
	case pod.DeletionTimestamp != nil:
		return p.end(ctx, i, fleet.Failed, "its pod is being deleted by somebody else")
	case kube.Ended(pod):
		if err := p.delete(ctx, pod); err != nil {
			return err
		}
		return p.end(ctx, i, fleet.Failed, endOf(pod))
	case startRefused(pod):
		if err := p.delete(ctx, pod); err != nil {
			return err
		}
		return p.end(ctx, i, fleet.Failed, "there was no room left for it on node "+pod.Spec.NodeName)
	}
	address, serves := addressOf(pod)
	if !serves && awaitsTurn(pod) {
		return reviewWaiting(ctx, p, i, pod)
	}
	if !serves {
		if ended, err := endMove(ctx, p, i, pod); err != nil || ended {
			return err
		}
		if again, err := recut(ctx, p, i, pod); err != nil || again {
			return err
		}
		if ended, err := endOverdue(ctx, p, i, pod); err != nil || ended {
			return err
		}
	}
	if serves {
		p.report(ctx, i, fleet.Event{Kind: fleet.Ready, Address: address})
	} else if why := api.Failure(pod); why != "" {
		p.report(ctx, i, fleet.Event{Kind: fleet.Restarting, Message: why})
	} else {
		p.report(ctx, i, fleet.Event{Kind: fleet.Starting, Message: waitsFor(pod)})
	}
	if takesTurns(pod) {
		return writeTurn(ctx, p, i, pod)
	}
	return p.writeResidency(ctx, i, pod, level)
}

// isInstance reports whether a pod has the labels of an instance and is controlled by a FaSTPod. Gateways take no other pods for replicas.
func isInstance(pod *v1.Pod, i *podInstance) bool {
	function, id, err := instanceOf(pod)
	owner := metav1.GetControllerOf(pod)
	return err == nil && owner != nil && owner.Kind == api.FaSTPodKind && pod.Namespace == i.Function.Namespace && function == i.Function.Name && scaling.ID(id) == i.ID
}

// takenAway is why an instance has ended whose pod is no longer its own.
const takenAway = "somebody has taken its labels or its controller from its pod, which is left alone"

// podOf returns the pod of an instance, or nil if it no longer exists. A pod that is not in the cache may still be at the API server.
func (p *Pods) podOf(ctx context.Context, i *podInstance) (*v1.Pod, error) {
	for _, reader := range []client.Reader{p.client, p.live} {
		pod := &v1.Pod{}
		switch err := reader.Get(ctx, i.pod, pod); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case pod.UID == i.uid:
			return pod, nil
		}
	}
	return nil, nil
}

// delete deletes this very pod, not another one of the same name.
func (p *Pods) delete(ctx context.Context, pod *v1.Pod) error {
	return client.IgnoreNotFound(p.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}
