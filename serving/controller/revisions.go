package controller

import (
	"cmp"
	"context"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// revisionOf returns the revision of a function's FaSTPod, or 0 if it has none because an earlier version of gshare created it.
func revisionOf(fp *api.FaSTPod) int64 {
	n, err := strconv.ParseInt(fp.Annotations[api.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// compareRevisions orders the FaSTPods of a function by when the function began to use them. No two compare equal, even if they were created in the
// same second, or with the same revision while the cache lagged.
func compareRevisions(a, b *api.FaSTPod) int {
	return cmp.Or(
		cmp.Compare(revisionOf(a), revisionOf(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// othersOf returns the other FaSTPods of the function that a FaSTPod belongs to.
func othersOf(ctx context.Context, reader client.Reader, fp *api.FaSTPod) ([]*api.FaSTPod, error) {
	list := &api.FaSTPodList{}
	if err := reader.List(ctx, list, client.InNamespace(fp.Namespace), client.MatchingFields{byFunction: fp.Spec.FunctionRef.Name}); err != nil {
		return nil, err
	}
	var others []*api.FaSTPod
	for at := range list.Items {
		other := &list.Items[at]
		if ref := other.Spec.FunctionRef; other.Name != fp.Name && ref != nil && ref.Name == fp.Spec.FunctionRef.Name && other.DeletionTimestamp == nil {
			others = append(others, other)
		}
	}
	return others, nil
}

// isSuperseded reports whether the function of a FaSTPod now uses a later one.
func isSuperseded(ctx context.Context, reader client.Reader, fp *api.FaSTPod) (bool, error) {
	others, err := othersOf(ctx, reader, fp)
	for _, other := range others {
		if compareRevisions(fp, other) < 0 {
			return true, err
		}
	}
	return false, err
}

// setLatest gives a FaSTPod a higher revision than the others of its function have, unless it is already the latest.
func setLatest(fp *api.FaSTPod, others []*api.FaSTPod) {
	latest, last := revisionOf(fp) > 0, int64(0)
	for _, other := range others {
		latest = latest && compareRevisions(fp, other) > 0
		last = max(last, revisionOf(other))
	}
	if !latest {
		setAnnotation(&fp.ObjectMeta, api.AnnotationRevision, strconv.FormatInt(last+1, 10))
	}
}
