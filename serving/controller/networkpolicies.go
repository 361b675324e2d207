package controller

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// networkPolicies makes the pods of functions accept connections only from gateways. Their nodes can always reach them, for probes. Users can admit
// others by policies of their own, since policies add up.
type networkPolicies struct {
	client   client.Client
	live     client.Reader
	gateways string // namespace of the gateways
}

// ensure creates or updates the NetworkPolicy of a function. It returns an error if another policy has its name.
func (n *networkPolicies) ensure(ctx context.Context, f *api.GPUFunction) error {
	policy := n.of(f)
	key := client.ObjectKeyFromObject(policy)
	found := &networking.NetworkPolicy{}
	if err := n.client.Get(ctx, key, found); err == nil && metav1.IsControlledBy(found, f) && equality.Semantic.DeepEqual(found.Spec, policy.Spec) {
		return nil
	}
	err := n.client.Create(ctx, policy)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := n.live.Get(ctx, key, found); err != nil {
		return err
	}
	if !metav1.IsControlledBy(found, f) {
		return fmt.Errorf("network policy %s is not that of the function, whose pods others may reach: name it otherwise", key.Name)
	}
	changed := found.DeepCopy()
	changed.Spec = policy.Spec
	return n.client.Patch(ctx, changed, client.MergeFrom(found))
}

// of returns the NetworkPolicy of a function.
func (n *networkPolicies) of(f *api.GPUFunction) *networking.NetworkPolicy {
	return &networking.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: "gshare-" + f.Name, Labels: map[string]string{api.LabelFunction: f.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, api.GroupVersion.WithKind(api.Kind))},
		},
		Spec: networking.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{api.LabelFunction: f.Name}},
			PolicyTypes: []networking.PolicyType{networking.PolicyTypeIngress},
			Ingress: []networking.NetworkPolicyIngressRule{{From: []networking.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: n.gateways}},
				PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "gshare-gateway"}},
			}}}},
		},
	}
}
