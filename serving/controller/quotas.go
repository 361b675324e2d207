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

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/tenancy"
)

// Quotas creates pods, unless a SharePolicy does not let their namespace have them. What a pod takes is accounted for before it is created, so of two
// that are created at the same time the second one sees the first. Each process has one account, for all pods that it makes.
type Quotas struct {
	client client.Client // reads from the cache
	live   client.Reader // reads from the API server
	synced []func() bool // whether the account has the pods that were there when this process began, of each cache

	mu      sync.Mutex
	account *tenancy.Account
	refused map[string]refused // by the name of the instance
}

// NewQuotas returns an account without pods.
func NewQuotas(c client.Client, live client.Reader) *Quotas {
	return &Quotas{client: c, live: live, account: tenancy.NewAccount(), refused: map[string]refused{}}
}

// Watch accounts for the pods of a cache from now on: for those that an object of a kind controls. It is to be called before any cache starts.
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

// isOthers reports whether a pod that counts is that of an object of another kind: labels of templates can bring it into the cache of this one.
func isOthers(p *v1.Pod, kind string) bool {
	return counts(p) && metav1.GetControllerOf(p).Kind != kind
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

// counts reports whether a pod counts against its namespace: a FaSTPod controls it, or a GPUProfile one with a share.
func counts(p *v1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil || kube.Ended(p) {
		return false
	}
	return owner.Kind == api.FaSTPodKind || owner.Kind == api.ProfileKind && kube.RequestsShare(p)
}

func tenantOf(p *v1.Pod) tenancy.Pod { return tenancy.Pod{Namespace: p.Namespace, Name: p.Name} }

// amountOf returns what a pod holds of the GPUs. Annotations do not make it less: users may change them. One can make it more, as it gives the pod a
// GPU of its own, and another adds weights, until the placement says which the pod has. A pod whose specification is no request of shares is placed nowhere.
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

// check returns a quotaError if a pod would not be created now. It takes nothing.
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

// Create creates a pod that counts. The error is one of OverQuota if a policy does not allow it.
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
	return err // without an answer, the pod may be there
}

// Found notes that the API server has a pod of the name of one that was to be created.
func (q *Quotas) Found(p *v1.Pod) {
	q.locked(func(a *tenancy.Account) {
		if counts(p) {
			a.Created(tenantOf(p), string(p.UID))
		} else {
			a.Forget(tenantOf(p))
		}
	})
}

// limits returns what the policies let a namespace hold.
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

// priorities returns a function that gives the priority of a namespace.
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

// confirmPeriod is the time between two looks at what was reserved for pods that have not been seen, and confirmPause the least time from when it was
// reserved: a request to create a pod takes no longer.
const (
	confirmPeriod = 10 * time.Second
	confirmPause  = 2 * time.Minute
)

// Run gives back what was reserved for pods that are not there, until ctx ends.
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
