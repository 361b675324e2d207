package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/tenancy"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// policyPeriod is the time between two looks at what the namespaces of a policy hold.
const policyPeriod = 10 * time.Second

// policies writes the status of SharePolicies, which are enforced where pods are created. It implements reconcile.Reconciler.
type policies struct {
	client client.Client
	quotas *Quotas
}

// Reconcile implements reconcile.Reconciler.
func (r *policies) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := &api.SharePolicy{}
	if err := r.client.Get(ctx, request.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	changed := policy.DeepCopy()
	r.quotas.locked(func(a *tenancy.Account) { changed.Status = policyStatus(policy, a) })
	if !equality.Semantic.DeepEqual(policy.Status, changed.Status) {
		if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(policy)); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	return reconcile.Result{RequeueAfter: policyPeriod}, nil
}

// policyStatus returns the status of a policy, given what the namespaces hold.
func policyStatus(p *api.SharePolicy, account *tenancy.Account) api.SharePolicyStatus {
	s := api.SharePolicyStatus{ObservedGeneration: p.Generation, Conditions: p.DeepCopy().Status.Conditions}
	var sum tenancy.Amount
	var exceeded []string
	for _, namespace := range account.Namespaces() {
		limit, limited := p.LimitOf(namespace)
		if !limited {
			continue
		}
		held := account.Held(namespace)
		sum = sum.Plus(held)
		s.Namespaces++
		for _, e := range tenancy.Exceeded([]tenancy.Limit{limit}, held) {
			exceeded = append(exceeded, fmt.Sprintf("namespace %s: %s", namespace, e))
		}
	}
	s.Replicas, s.SMPercent = int32(sum.Replicas), int64((sum.Area*100+share.WholeArea-1)/share.WholeArea)
	s.Memory = api.Quantity(fmt.Sprintf("%dMi", sum.Memory))
	over := metav1.Condition{Type: api.ConditionExceeded, Status: metav1.ConditionFalse, Reason: "WithinLimits", ObservedGeneration: p.Generation}
	if len(exceeded) > 0 {
		over.Status, over.Reason, over.Message = metav1.ConditionTrue, "HeldBefore", shortened(strings.Join(exceeded, "; "), maxMessage)
	}
	meta.SetStatusCondition(&s.Conditions, over)
	return s
}
