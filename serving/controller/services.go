package controller

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// services gives functions names in the cluster's DNS: for each function there is a Service of type ExternalName with its name, which leads to the
// gateways. So the host of requests names the function, and no node needs a rule for the Service.
type services struct {
	client  client.Client
	live    client.Reader
	gateway string // host name of the gateways' Service, with the domain of the cluster
}

// ensure creates or updates the Service of a function. It returns an error if another Service has its name.
func (s *services) ensure(ctx context.Context, f *api.GPUFunction) error {
	key := client.ObjectKeyFromObject(f)
	found := &v1.Service{}
	if err := s.client.Get(ctx, key, found); err == nil && metav1.IsControlledBy(found, f) && found.Spec.ExternalName == s.gateway {
		return nil
	}
	service := s.of(f)
	err := s.client.Create(ctx, service)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := s.live.Get(ctx, key, found); err != nil {
		return err
	}
	if !metav1.IsControlledBy(found, f) {
		return fmt.Errorf("service %s is not that of the function: name one of them otherwise, or send requests to %s with Host: %s.%s",
			key.Name, s.gateway, f.Name, f.Namespace)
	}
	changed := found.DeepCopy()
	changed.Spec.ExternalName = s.gateway
	return s.client.Patch(ctx, changed, client.MergeFrom(found))
}

// of returns the Service of a function.
func (s *services) of(f *api.GPUFunction) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: f.Name, Labels: map[string]string{api.LabelFunction: f.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, api.GroupVersion.WithKind(api.Kind))},
		},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: s.gateway},
	}
}
