package controller

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

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
