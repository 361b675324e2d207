package controller

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// takeProfile returns a copy of a function with what its profile recommends in its status, and creates the profile if it does not exist. While the
// profile is measured again or created again, the function keeps the previous recommendation. A function that is not to have a profile has no
// recommendation. If the error is not nil, it says why there is no profile; the function is returned even then.
func (r *functions) takeProfile(ctx context.Context, f *api.GPUFunction) (*api.GPUFunction, error) {
	f = f.DeepCopy()
	name := r.profileOf(f)
	if name == "" {
		f.Status.Profiled = nil
		return f, nil
	}
	p := &api.GPUProfile{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: name}, p)
	switch {
	case apierrors.IsNotFound(err):
		return f, r.createProfile(ctx, f, name)
	case err != nil:
		return f, err
	case f.Spec.ProfileRef == nil && (p.Spec.FunctionRef == nil || p.Spec.FunctionRef.Name != f.Name):
		return f, fmt.Errorf("GPUProfile %s measures something else than this function: spec.profileRef can name another one", name)
	case p.Spec.Training != nil:
		return f, fmt.Errorf("GPUProfile %s measures a training, not a function: spec.profileRef can name another one", name)
	case p.Status.Recommended != nil:
		f.Status.Profiled = p.Status.Recommended.DeepCopy()
		if p.Spec.Search.Strategy != api.Bisection { // other searches only say how far a user may go (D26)
			f.Status.Profiled.SMLimit = 0
		}
	}
	return f, nil
}

// profileOf returns the name of a function's profile, or an empty text if it has none or is not to get one without asking for it.
func (r *functions) profileOf(f *api.GPUFunction) string {
	if f.SaysOnlyObjective() && !r.profileUnasked {
		return ""
	}
	return f.Profile()
}

// createProfile creates the profile of a function, which is deleted with the function.
func (r *functions) createProfile(ctx context.Context, f *api.GPUFunction, name string) error {
	p := &api.GPUProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, api.GroupVersion.WithKind(api.Kind))},
		},
		Spec: api.GPUProfileSpec{FunctionRef: &api.FunctionReference{Name: f.Name}, Remeasure: api.RemeasureNewImage},
	}
	err := r.client.Create(ctx, p)
	if apierrors.IsAlreadyExists(err) { // it exists, but is not in the cache yet
		return nil
	}
	if err == nil {
		r.recorder.Eventf(f, p, v1.EventTypeNormal, eventProfiling, "Create", "Created GPUProfile %s, which measures what a replica needs", p.Name)
	}
	return err
}

// functionsOf returns the functions that have this profile.
func (r *functions) functionsOf(ctx context.Context, p client.Object) []reconcile.Request {
	list := &api.GPUFunctionList{}
	if err := r.client.List(ctx, list, client.InNamespace(p.GetNamespace())); err != nil {
		return nil // only fails while the cache shuts down
	}
	var found []reconcile.Request
	for at := range list.Items {
		if f := &list.Items[at]; r.profileOf(f) == p.GetName() {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)})
		}
	}
	return found
}

// recommends reports whether a change of a profile matters to functions: whether it has another recommendation than before.
func recommends(before, now client.Object) bool {
	a, b := before.(*api.GPUProfile).Status.Recommended, now.(*api.GPUProfile).Status.Recommended
	return b != nil && !equality.Semantic.DeepEqual(a, b)
}
