package controller

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// Fields by which the cache finds objects. To find them by a label, it would compare all objects of the namespace for each change of a pod.
const (
	byFunction = "function" // pods and FaSTPods of a function, by its name
	byFaSTPod  = "fastpod"  // pods of a FaSTPod, by its name
	byRoom     = "room"     // pods of functions that are to end (leaving), and those for which the scheduler finds no node (waiting)
)

// index is a field of the objects of one type.
type index struct {
	object client.Object
	field  string
	values client.IndexerFunc
}

// indexes are all indexes that the controller needs in its cache.
var indexes = []index{
	{&v1.Pod{}, byFunction, labelled(api.LabelFunction)},
	{&v1.Pod{}, byFaSTPod, labelled(api.LabelFaSTPod)},
	{&v1.Pod{}, byRoom, roomOf},
	{&api.FaSTPod{}, byFunction, labelled(api.LabelFunction)},
}

// labelled returns an index by the value of a label.
func labelled(name string) client.IndexerFunc {
	return func(o client.Object) []string {
		if value := o.GetLabels()[name]; value != "" {
			return []string{value}
		}
		return nil
	}
}

// Values of byRoom.
const (
	leaving = "leaving"
	waiting = "waiting"
)

// roomOf returns a pod's value of byRoom.
func roomOf(o client.Object) []string {
	p, ok := o.(*v1.Pod)
	switch {
	case !ok || p.Labels[api.LabelFunction] == "":
		return nil
	case !leavesBy(p).IsZero(): // an index cannot depend on the present time
		return []string{leaving}
	case unschedulable(p) != nil:
		return []string{waiting}
	}
	return nil
}

// addIndexes adds the indexes to a cache.
func addIndexes(indexer client.FieldIndexer) error {
	var err error
	for _, i := range indexes {
		err = errors.Join(err, indexer.IndexField(context.Background(), i.object, i.field, i.values))
	}
	return err
}
