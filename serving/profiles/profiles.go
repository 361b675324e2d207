// Package profiles carries out the GPUProfiles of a Kubernetes cluster: it measures servers and trainings on shares of a GPU, one trial after another.
//
// A trial of a server consists of two pods in the profile's namespace. One is the server, which is alone on its GPU because it asks for all of the memory. The
// other sends requests to it, and leaves its measurements as the termination message of its container. A trial of a training has only the first pod, whose
// kernels the agent of its node counts. Package profiler decides what to measure next from the trials in the profile's status.
//
// Nothing but the status and the pods is remembered. There is one write at a time, which follows from them (see state). A crash of the controller, the client
// or the server at any time therefore loses no trial, and repeats at most the one in progress.
package profiles

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Reconciler measures what GPUProfiles ask for. It implements reconcile.Reconciler.
type Reconciler struct {
	Client client.Client
	Pods   client.Reader // of the pods with api.LabelProfile
	Live   client.Reader // reads from the API server
	Quotas *controller.Quotas
	Events events.EventRecorder
	Log    *slog.Logger

	Version string // of gshare
	// Image returns the image that this process runs, which the clients run too.
	Image func(ctx context.Context) (string, error)
}

// writePause is the time after a write until the profile is looked at again: the cache then contains the write.
const writePause = 100 * time.Millisecond

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p := &api.GPUProfile{}
	if err := r.Client.Get(ctx, request.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.DeletionTimestamp != nil { // the garbage collector deletes the profile's pods
		return reconcile.Result{}, nil
	}
	pods, err := r.podsOf(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	f, err := r.functionOf(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := decision{}
	if plan, problem := r.planOf(p, f); problem != nil {
		d = refuse(p, pods, problem)
	} else if d, err = r.decide(ctx, p, f, plan, pods); err != nil {
		return reconcile.Result{}, err
	}
	return r.apply(ctx, p, d)
}

// podsOf returns the pods that a profile controls.
func (r *Reconciler) podsOf(ctx context.Context, p *api.GPUProfile) ([]*v1.Pod, error) {
	list := &v1.PodList{}
	if err := r.Pods.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingLabels{api.LabelProfile: p.Name}); err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for at := range list.Items {
		if pod := &list.Items[at]; metav1.IsControlledBy(pod, p) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// functionOf returns the function that a profile names, or nil if there is none.
func (r *Reconciler) functionOf(ctx context.Context, p *api.GPUProfile) (*api.GPUFunction, error) {
	if p.Spec.FunctionRef == nil {
		return nil, nil
	}
	f := &api.GPUFunction{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.FunctionRef.Name}, f)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return f, err
}

func (r *Reconciler) planOf(p *api.GPUProfile, f *api.GPUFunction) (*plan, error) {
	if p.Spec.FunctionRef != nil && f == nil {
		return nil, share.Invalid("spec.functionRef.name", "there is no GPUFunction %s", p.Spec.FunctionRef.Name)
	}
	return planOf(p, f)
}

// refuse removes the pods of a profile that asks for something that cannot be measured. Its trials stay: they count again if
// the profile asks for the same as before.
func refuse(p *api.GPUProfile, pods []*v1.Pod, problem error) decision {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			return decision{remove: pod}
		}
	}
	status := p.Status.DeepCopy()
	status.Attempt, status.Target, status.Current = nil, nil, ""
	setComplete(status, p.Generation, metav1.ConditionFalse, api.ReasonInvalid, problem.Error())
	return (&state{profile: p}).write(status)
}

func (r *Reconciler) decide(ctx context.Context, p *api.GPUProfile, f *api.GPUFunction, plan *plan, pods []*v1.Pod) (decision, error) {
	nodes := &v1.NodeList{}
	if err := r.Client.List(ctx, nodes); err != nil {
		return decision{}, err
	}
	image, err := r.Image(ctx)
	if err != nil {
		return decision{}, fmt.Errorf("image of the client: %w", err)
	}
	s := &state{profile: p, plan: plan, pods: pods, nodes: nodes.Items, version: r.Version, image: image, now: time.Now(), function: f}
	if f != nil {
		list := &v1.PodList{}
		if err := r.Client.List(ctx, list, client.InNamespace(f.Namespace), client.MatchingLabels{api.LabelFunction: f.Name}); err != nil {
			return decision{}, err
		}
		s.replicas, s.served = list.Items, served(list.Items)
	}
	return s.decide(), nil
}

// served returns the image, with its digest, of the youngest ready replica.
func served(replicas []v1.Pod) string {
	image, youngest := "", metav1.Time{}
	for _, pod := range replicas {
		if _, ready := api.Address(&pod); !ready || pod.CreationTimestamp.Before(&youngest) {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == pod.Spec.Containers[0].Name && c.ImageID != "" {
				image, youngest = c.ImageID, pod.CreationTimestamp
			}
		}
	}
	return image
}

// apply carries out a decision.
func (r *Reconciler) apply(ctx context.Context, p *api.GPUProfile, d decision) (reconcile.Result, error) {
	var err error
	switch {
	case d.status != nil:
		changed := p.DeepCopy()
		changed.Status = *d.status
		// The optimistic lock keeps this write from overwriting what others, such as an earlier leader, have written since
		// the profile was read.
		err = r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			r.report(p, d.status)
		}
	case d.quota != nil:
		err = r.Client.Patch(ctx, withQuota(d.quota, p.Status.Target.Quota), client.MergeFromWithOptions(d.quota, client.MergeFromWithOptimisticLock{}))
	case d.remove != nil:
		err = r.Client.Delete(ctx, d.remove, client.Preconditions{UID: &d.remove.UID}, client.GracePeriodSeconds(endGrace))
	case d.create != nil:
		if err = r.create(ctx, p, d.create); controller.OverQuota(err) != "" {
			return r.wait(ctx, p, controller.OverQuota(err))
		}
	default:
		return reconcile.Result{RequeueAfter: d.after}, nil
	}
	if apierrors.IsConflict(err) || client.IgnoreNotFound(err) == nil {
		return reconcile.Result{RequeueAfter: max(writePause, d.after)}, nil
	}
	return reconcile.Result{}, err
}

// quotaPause is the time after which to try again to create a server that a policy did not allow.
const quotaPause = 10 * time.Second

// wait reports in the status that a policy does not allow the profile's namespace to have the server.
func (r *Reconciler) wait(ctx context.Context, p *api.GPUProfile, why string) (reconcile.Result, error) {
	status := p.Status.DeepCopy()
	setComplete(status, p.Generation, metav1.ConditionFalse, api.ReasonOverQuota, why)
	result, err := r.apply(ctx, p, (&state{profile: p}).write(status))
	result.RequeueAfter = quotaPause
	return result, err
}

// endGrace is the termination grace period of a trial's pods, in seconds: nobody waits for their answers.
const endGrace = 5

// create creates a pod unless it already exists.
func (r *Reconciler) create(ctx context.Context, p *api.GPUProfile, pod *v1.Pod) error {
	var err error
	if kube.RequestsShare(pod) {
		err = r.Quotas.Create(ctx, pod)
	} else {
		err = r.Client.Create(ctx, pod)
	}
	if controller.OverQuota(err) != "" {
		return err
	}
	if apierrors.IsAlreadyExists(err) { // the cache does not contain it yet
		existing := &v1.Pod{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(pod), existing); err != nil {
			return client.IgnoreNotFound(err)
		}
		r.Quotas.Found(existing)
		switch {
		case !metav1.IsControlledBy(existing, p):
			err = fmt.Errorf("pod %s is somebody else's", pod.Name)
		case existing.Labels[api.LabelProfile] != p.Name: // the label was removed, so that the cache never contains the pod
			if existing.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is ending", pod.Name) // tried again with growing pauses
			}
			return client.IgnoreNotFound(r.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}, client.GracePeriodSeconds(endGrace)))
		default:
			return nil
		}
	}
	if err != nil {
		r.Events.Eventf(p, nil, v1.EventTypeWarning, eventFailedCreate, "Create", "%s", bounded(fmt.Sprintf("Pod %s cannot be created: %v", pod.Name, err), maxMessage))
	}
	return err
}

// eventFailedCreate says that the server or the client of a trial cannot be created.
//
//	kind: event
//	object: GPUProfile
//	type: Warning
//	written by: gshare-controller
//	to do: fix what the message names in the template of the profile or of its function
const eventFailedCreate = "FailedCreate"

// report tells the owner of a profile how the profile has ended.
func (r *Reconciler) report(p *api.GPUProfile, now *api.GPUProfileStatus) {
	was, is := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete), meta.FindStatusCondition(now.Conditions, api.ConditionComplete)
	if is == nil || was != nil && was.Reason == is.Reason {
		return
	}
	switch b := now.Recommended; is.Reason {
	case api.ReasonMeasured, api.ReasonBudgetUsed:
		if b == nil { // the search was allowed too few trials
			r.Events.Eventf(p, nil, v1.EventTypeNormal, is.Reason, "Measure", "%s", bounded(is.Message, maxMessage))
			return
		}
		if p.Spec.Training != nil {
			r.Events.Eventf(p, nil, v1.EventTypeNormal, is.Reason, "Measure", "%d%% of the SMs launch %.4g kernels/s, and up to %d%% are of use, after %d trials",
				b.SM, b.KernelsPerSecond, b.SMLimit, now.Trials)
			return
		}
		r.Events.Eventf(p, nil, v1.EventTypeNormal, is.Reason, "Measure", "%s answers %.4g requests/s within the objective, after %d trials",
			settingText(b.SM, b.Quota, b.MaxBatch), b.RequestsPerSecond, now.Trials)
	case api.ReasonNoShare, api.ReasonClientFailed, api.ReasonClientWaits, api.ReasonInvalid, api.ReasonOverQuota:
		r.Events.Eventf(p, nil, v1.EventTypeWarning, is.Reason, "Measure", "%s", bounded(is.Message, maxMessage))
	}
}
