package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/tenancy"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Quotas creates pods, unless a SharePolicy does not allow their namespace to have them. What a pod takes is accounted for before it is created, so
// that of two pods created at the same time the second one is checked against the first. Each process has one account, for all pods that it creates.
type Quotas struct {
	client client.Client // reads from the cache
	live   client.Reader // reads from the API server
	synced []func() bool // report, for each cache, whether the account has the pods that existed when this process began

	mu      sync.Mutex
	account *tenancy.Account
	refused map[string]refused // by name of the instance
}

// NewQuotas returns Quotas with an empty account.
func NewQuotas(c client.Client, live client.Reader) *Quotas {
	return &Quotas{client: c, live: live, account: tenancy.NewAccount(), refused: map[string]refused{}}
}

// Watch accounts from now on for the pods in a cache that an object of a kind controls. Call it before any cache starts.
func (q *Quotas) Watch(c crcache.Cache, kind string) error {
	informer, err := c.GetInformer(context.Background(), &v1.Pod{}, crcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(q.handler(kind))
	if err != nil {
		return err
	}
	q.synced = append(q.synced, registration.HasSynced)
	return nil
}

// handler returns the handler of events of pods that an object of a kind may control.
func (q *Quotas) handler(kind string) cache.ResourceEventHandler {
	seen := func(object any) {
		if p, ok := object.(*v1.Pod); ok && !isOthers(p, kind) {
			q.see(p)
		}
	}
	gone := func(object any) {
		if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unseen.Obj
		}
		if p, ok := object.(*v1.Pod); ok && !isOthers(p, kind) {
			q.locked(func(a *tenancy.Account) { a.Gone(tenantOf(p), string(p.UID)) })
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: seen, DeleteFunc: gone, UpdateFunc: func(before, now any) {
		if b, n := before.(*v1.Pod), now.(*v1.Pod); b.UID != n.UID {
			gone(b)
		}
		seen(now)
	}}
}

// isOthers reports whether a pod that counts is of an object of another kind: labels of templates can bring it into this kind's cache.
func isOthers(p *v1.Pod, kind string) bool {
	return counts(p) && kindOf(p) != kind
}

func (q *Quotas) see(p *v1.Pod) {
	q.locked(func(a *tenancy.Account) {
		if counts(p) {
			a.Seen(tenantOf(p), string(p.UID), amountOf(p))
		} else {
			a.Gone(tenantOf(p), string(p.UID))
		}
	})
}

// counts reports whether a pod counts against its namespace: it has not ended and is of a FaSTPod, or requests a share and is of a GPUProfile.
func counts(p *v1.Pod) bool {
	kind := kindOf(p)
	return !kube.Ended(p) && (kind == api.FaSTPodKind || kind == api.ProfileKind && kube.RequestsShare(p))
}

// kindOf returns the kind of the object that controls a pod. A pod that nothing controls is of the object that its labels name: that may have been
// deleted without its pods, which go on.
func kindOf(p *v1.Pod) string {
	switch owner := metav1.GetControllerOf(p); {
	case owner != nil:
		return owner.Kind
	case p.Labels[api.LabelFaSTPod] != "":
		return api.FaSTPodKind
	case p.Labels[api.LabelProfile] != "":
		return api.ProfileKind
	}
	return ""
}

func tenantOf(p *v1.Pod) tenancy.Pod { return tenancy.Pod{Namespace: p.Namespace, Name: p.Name} }

// amountOf returns what a pod holds of the GPUs. Users may change annotations, so these cannot make the amount smaller. Two can make it larger: one
// gives the pod a GPU of its own, and one adds weights, until the placement says which weights the pod has. A pod whose specification is not a valid
// request is placed nowhere.
func amountOf(p *v1.Pod) tenancy.Amount {
	request, _, err := kube.RequestOf(&v1.Pod{Spec: p.Spec})
	if err != nil {
		return tenancy.Amount{Replicas: 1}
	}
	if p.Annotations[kube.AnnotationIsolation] == string(share.Exclusive) {
		request.Isolation = share.Exclusive
	}
	if placed, is, err := kube.PlacementOf(p); is && err == nil {
		request.Weights = placed.Weights
	} else if weights, err := share.ParseWeights(p.Annotations[kube.AnnotationWeights]); err == nil {
		request.Weights = weights
	}
	return tenancy.AmountOf(request)
}

// check returns a quotaError if a pod could not be created now. It reserves nothing.
func (q *Quotas) check(ctx context.Context, p *v1.Pod) error {
	limits, err := q.limits(ctx, p.Namespace)
	if err != nil || len(limits) == 0 {
		return err
	}
	var excess []tenancy.Excess
	q.locked(func(a *tenancy.Account) { excess = a.Check(tenantOf(p), amountOf(p), limits) })
	if len(excess) > 0 {
		return &quotaError{excess}
	}
	return nil
}

// Create creates a pod that counts. If a policy does not allow it, OverQuota returns why for the error.
func (q *Quotas) Create(ctx context.Context, p *v1.Pod) error {
	if slices.ContainsFunc(q.synced, func(synced func() bool) bool { return !synced() }) {
		return errors.New("the pods that there are are not known yet")
	}
	limits, err := q.limits(ctx, p.Namespace)
	if err != nil {
		return err
	}
	var excess []tenancy.Excess
	q.locked(func(a *tenancy.Account) { excess = a.Reserve(tenantOf(p), amountOf(p), limits, time.Now()) })
	if len(excess) > 0 {
		return &quotaError{excess}
	}
	switch err = q.client.Create(ctx, p); {
	case err == nil:
		q.Found(p)
	case isRefused(err):
		q.locked(func(a *tenancy.Account) { a.Release(tenantOf(p)) })
	}
	return err // other errors: the pod may have been created all the same
}

// Found records that the API server has a pod with the name of one that was to be created.
func (q *Quotas) Found(p *v1.Pod) {
	q.locked(func(a *tenancy.Account) {
		if counts(p) {
			a.Created(tenantOf(p), string(p.UID))
		} else {
			a.Forget(tenantOf(p))
		}
	})
}

// limits returns what the policies allow a namespace to hold.
func (q *Quotas) limits(ctx context.Context, namespace string) ([]tenancy.Limit, error) {
	list := &api.SharePolicyList{}
	if err := q.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var found []tenancy.Limit
	for at := range list.Items {
		if limit, ok := list.Items[at].LimitOf(namespace); ok {
			found = append(found, limit)
		}
	}
	return found, nil
}

// priorities returns a function that returns the priority of a namespace.
func (q *Quotas) priorities(ctx context.Context) (func(namespace string) int32, error) {
	list := &api.SharePolicyList{}
	if err := q.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return func(namespace string) int32 {
		var least *int32
		for at := range list.Items {
			if t := list.Items[at].Tenant(namespace); t != nil && (least == nil || t.Priority < *least) {
				least = &t.Priority
			}
		}
		if least == nil {
			return 0
		}
		return *least
	}, nil
}

// confirmPeriod is the time between two checks of reservations for pods that have not been seen. confirmPause is how old a reservation must be to be
// checked: a request to create a pod takes no longer.
const (
	confirmPeriod = 10 * time.Second
	confirmPause  = 2 * time.Minute
)

// Run releases reservations for pods that do not exist, until ctx ends.
func (q *Quotas) Run(ctx context.Context) {
	ticker := time.NewTicker(confirmPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			q.confirm(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (q *Quotas) confirm(ctx context.Context) {
	var unconfirmed []tenancy.Pod
	q.locked(func(a *tenancy.Account) { unconfirmed = a.Unconfirmed(time.Now().Add(-confirmPause)) })
	for _, one := range unconfirmed {
		p := &v1.Pod{}
		switch err := q.live.Get(ctx, client.ObjectKey{Namespace: one.Namespace, Name: one.Name}, p); {
		case apierrors.IsNotFound(err):
			q.locked(func(a *tenancy.Account) { a.Forget(one) })
		case err == nil:
			q.Found(p)
		}
	}
}

func (q *Quotas) locked(do func(*tenancy.Account)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do(q.account)
}
