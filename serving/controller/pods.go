package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/gshare-dev/gshare/vgpu/residency"
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

// isRefused reports whether the API server will refuse to create an object every time until somebody changes something.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

// deleteAttempted deletes the pod of an instance that may have been created although the API server did not confirm it.
func (p *Pods) deleteAttempted(ctx context.Context, i *podInstance) error {
	if i.attempted.Name == "" {
		return nil
	}
	pod := &v1.Pod{}
	if err := p.live.Get(ctx, i.attempted, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !isInstance(pod, i) {
		return nil
	}
	return p.delete(ctx, pod)
}

// create creates the pod of an instance, or finds the one that an earlier leader has created. The pod that the instance had before it failed may
// still exist; then a number is appended to the new one's name.
func (p *Pods) create(ctx context.Context, i *podInstance) error {
	wanted := fastPodOf(i.Function)
	cut, err := cutter{p.client, p.onNodes}.next(ctx, i)
	if err != nil && i.Move.From != 0 {
		return fmt.Errorf("%w: %w", errCannotMove, err)
	} else if err != nil {
		return err
	}
	first := functionPod(wanted, fmt.Sprintf("%s-%d", wanted.Name, i.ID), int(i.ID))
	cut.apply(first)
	if err := p.quotas.check(ctx, first); err != nil {
		return err // before a FaSTPod is created or kept for it
	}
	fp, err := p.ensureFastPod(ctx, i.Function)
	if err != nil {
		return err
	}
	for search := (nameSearch{}); !search.ended(); {
		name := fmt.Sprintf("%s-%d", fp.Name, i.ID)
		if search.number > 0 {
			name = fmt.Sprintf("%s-%d", name, search.number)
		}
		pod := functionPod(fp, name, int(i.ID))
		cut.apply(pod)
		setMovesFrom(pod, i.Move)
		created := residency.Created(residency.Hot) // the pod is placed with its whole share, and lowered later
		if takesTurns(pod) {
			created = residency.CreatedInTurn()
		}
		if err := setWanted(pod, created); err != nil {
			return err
		}
		i.attempted = client.ObjectKeyFromObject(pod)
		err := p.quotas.Create(ctx, pod)
		if apierrors.IsAlreadyExists(err) {
			if err := p.live.Get(ctx, client.ObjectKeyFromObject(pod), pod); apierrors.IsNotFound(err) {
				search.again() // it has just been removed
				continue
			} else if err != nil {
				return err
			}
			p.quotas.Found(pod)
			if pod.DeletionTimestamp != nil || kube.Ended(pod) || !metav1.IsControlledBy(pod, fp) || !isInstance(pod, i) {
				search.next()
				continue
			}
		} else if err != nil {
			return err
		}
		p.mu.Lock()
		i.pod, i.uid = client.ObjectKeyFromObject(pod), pod.UID
		p.mu.Unlock()
		if cut != nil {
			i.cuts.add(cutKeyOf(pod))
		}
		p.quotas.settle(i.Name)
		p.log.Info("created pod", "replica", i.Name, "pod", i.pod.String())
		return nil
	}
	return errNamesTaken
}

// ensureFastPod returns the FaSTPod of a function and creates it if necessary. When several replicas of a function start together, they all need the
// same one; it exists for all but the first.
func (p *Pods) ensureFastPod(ctx context.Context, f *api.GPUFunction) (*api.FaSTPod, error) {
	wanted := fastPodOf(f)
	key := client.ObjectKeyFromObject(wanted)
	for at, reader := range []client.Reader{p.client, p.live} {
		found := &api.FaSTPod{}
		if err := reader.Get(ctx, key, found); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		if err := p.keepFastPod(ctx, f, found); err != nil && at == 0 {
			continue // the cache may lag
		} else if err != nil {
			return nil, err
		}
		return found, nil
	}
	others, err := othersOf(ctx, p.client, wanted)
	if err != nil {
		return nil, err
	}
	setLatest(wanted, others)
	*wanted.Spec.Replicas = 1
	err = p.client.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		found := &api.FaSTPod{}
		if err = p.live.Get(ctx, key, found); err == nil {
			return found, p.keepFastPod(ctx, f, found)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create FaSTPod %s: %w", key, err)
	}
	return wanted, nil
}

// keepFastPod keeps a function's FaSTPod from being deleted for having no pods, even if the function used it before and now uses it again. A FaSTPod
// that the function does not control belongs to somebody else, or to an earlier function of this name, with which the garbage collector deletes it.
func (p *Pods) keepFastPod(ctx context.Context, f *api.GPUFunction, fp *api.FaSTPod) error {
	switch {
	case !metav1.IsControlledBy(fp, f) || fp.Spec.FunctionRef == nil || fp.Spec.FunctionRef.Name != f.Name:
		return fmt.Errorf("FaSTPod %s/%s is there already, and is not of this function", fp.Namespace, fp.Name)
	case fp.DeletionTimestamp != nil:
		return fmt.Errorf("FaSTPod %s/%s is being deleted", fp.Namespace, fp.Name)
	}
	others, err := othersOf(ctx, p.client, fp)
	if err != nil {
		return err
	}
	before := fp.DeepCopy()
	setLatest(fp, others)
	if fp.Spec.Replicas == nil || *fp.Spec.Replicas < 1 {
		fp.Spec.Replicas = new(int32(1))
	}
	if equality.Semantic.DeepEqual(before, fp) {
		return nil
	}
	return p.client.Patch(ctx, fp, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// end reports the last event of an instance, of which nothing serves any more, and forgets the instance.
func (p *Pods) end(ctx context.Context, i *podInstance, kind fleet.EventKind, why string) error {
	i.stopAsking()
	p.mu.Lock()
	if p.instances[i.Name] == i {
		delete(p.instances, i.Name)
		delete(p.inTurn, i.Name)
	}
	p.mu.Unlock()
	p.quotas.settle(i.Name)
	p.report(ctx, i, fleet.Event{Kind: kind, Message: why})
	return nil
}

// report sends an event about an instance, unless it is the same as the last one.
func (p *Pods) report(ctx context.Context, i *podInstance, e fleet.Event) {
	e.Instance = i.Name
	if e == i.reported {
		return
	}
	i.reported = e
	p.send(ctx, e)
}

func (p *Pods) send(ctx context.Context, e fleet.Event) {
	select {
	case p.events <- e:
	case <-ctx.Done():
	}
}

// endOf returns why a pod has ended.
func endOf(p *v1.Pod) string {
	text := "its pod has ended: " + string(p.Status.Phase)
	if p.Status.Reason != "" {
		text += ", " + p.Status.Reason
	}
	if p.Status.Message != "" {
		text += ": " + p.Status.Message
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			text += fmt.Sprintf("; container %s exited with code %d (%s)", c.Name, t.ExitCode, t.Reason)
		}
	}
	return text
}

// maxNote is the greatest length in bytes of the text of an event, maxMessage that of a condition. The API server accepts longer conditions.
const (
	maxNote    = 1024
	maxMessage = 4096
)

// shortened returns a text cut to a number of bytes if it is longer. Errors of the API server repeat what users have written, which may have any length.
func shortened(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
