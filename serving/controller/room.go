package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// room gives up replicas in reserve, of any function, to make room for pods of functions that the scheduler cannot place.
type room struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server, as the cache lacks pods of others
	fleet    *fleet.Fleet
	pods     *Pods
	recorder events.EventRecorder
	log      *slog.Logger
	time     prometheus.Observer // time of the searches for pods without room; may be nil

	looked map[types.UID]time.Time // when room was last looked for, by pod
	given  map[types.UID]given     // pods that were given up and are still in the cache
}

// given is a pod that was given up.
type given struct {
	key  client.ObjectKey
	node string
	park bool      // it is parked, and otherwise ends
	by   time.Time // when that is not expected any more
}

// roomPause is the time after which room is made for an unschedulable pod, and roomAgain the time between two tries: what was given up may take its
// grace period to end, and each try reads the pods of nodes from the API server.
const (
	roomPause = 2 * time.Second
	roomAgain = 5 * time.Second
)

// parkingLimit is the time after which a replica that was to be parked is no longer expected to be.
const parkingLimit = time.Minute

// isSettled reports whether the pod of a replica that was to be parked is parked, so that its own state shows what it has released.
func isSettled(p *v1.Pod) bool {
	_, r, _ := kube.ResidencyOf(p)
	return r.Level == residency.Warm
}

// Run looks for pods without room each second until ctx ends.
func (r *room) Run(ctx context.Context) {
	r.looked, r.given = map[types.UID]time.Time{}, map[types.UID]given{}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := r.look(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("failed to make room", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look makes room for one of the pods that have none, the one of its namespace that has waited longest since the last time.
func (r *room) look(ctx context.Context) error {
	next, ending, err := r.next(ctx)
	if err != nil || next == nil {
		return err
	}
	r.looked[next.UID] = time.Now()
	return r.make(ctx, next, ending)
}

// next returns the pod to make room for, nil if there is none, and the nodes of those pods that are to end. Namespaces take turns, so that one with
// many pods that have no room does not hold up others.
func (r *room) next(ctx context.Context) (next *v1.Pod, ending map[types.UID]string, err error) {
	defer observe(r.time, time.Now())
	without, leave := &v1.PodList{}, &v1.PodList{}
	if err := errors.Join(r.client.List(ctx, without, client.MatchingFields{byRoom: waiting}), r.client.List(ctx, leave, client.MatchingFields{byRoom: leaving})); err != nil {
		return nil, nil, err
	}
	waits, last := map[types.UID]bool{}, map[string]time.Time{} // last is when a search was made for a pod of a namespace
	for at := range without.Items {
		pod := &without.Items[at]
		waits[pod.UID] = true
		if looked := r.looked[pod.UID]; looked.After(last[pod.Namespace]) {
			last[pod.Namespace] = looked
		}
	}
	for at := range without.Items {
		pod := &without.Items[at]
		looked, name := r.looked[pod.UID], nameOf(r.pods, pod)
		switch {
		case name == "" || !waitsForRoom(pod) || time.Since(looked) < roomAgain || mayRecut(r.pods, name, pod):
		case next == nil || cmp.Or(last[pod.Namespace].Compare(last[next.Namespace]), looked.Compare(r.looked[next.UID])) < 0:
			next = pod
		}
	}
	maps.DeleteFunc(r.looked, func(uid types.UID, _ time.Time) bool { return !waits[uid] })
	ending = map[types.UID]string{}
	for at := range leave.Items {
		if pod := &leave.Items[at]; isLeaving(pod) {
			ending[pod.UID] = pod.Spec.NodeName
		}
	}
	for uid, given := range r.given {
		if pod := r.podOf(ctx, given.key, uid); pod == nil || given.park && isSettled(pod) || time.Now().After(given.by) {
			delete(r.given, uid)
		} else {
			ending[uid] = given.node
		}
	}
	return next, ending, nil
}

// podOf returns the pod with a name and a UID from the cache, or nil if it is not there. An empty UID matches any pod.
func (r *room) podOf(ctx context.Context, key client.ObjectKey, uid types.UID) *v1.Pod {
	pod := &v1.Pod{}
	if err := r.client.Get(ctx, key, pod); err != nil || uid != "" && pod.UID != uid {
		return nil
	}
	return pod
}

// unschedulable returns the condition that says that the scheduler has found no node for a pod, or nil if there is none.
func unschedulable(p *v1.Pod) *v1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
	if i < 0 || p.Spec.NodeName != "" {
		return nil
	}
	if c := &p.Status.Conditions[i]; c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
		return c
	}
	return nil
}

// waitsForRoom reports whether the scheduler has found no node for a pod for at least roomPause.
func waitsForRoom(p *v1.Pod) bool {
	c := unschedulable(p)
	return c != nil && time.Since(c.LastTransitionTime.Time) >= roomPause
}

// make gives up the replicas in reserve that are in the way of a pod.
func (r *room) make(ctx context.Context, pod *v1.Pod, ending map[types.UID]string) error {
	var spares []spare
	priority, err := r.pods.quotas.priorities(ctx)
	if err != nil {
		return err
	}
	for _, s := range r.fleet.Spares() {
		if key, found := r.pods.keyOf(s.Instance); found {
			if p := r.podOf(ctx, key, ""); p != nil && nameOf(r.pods, p) == s.Instance && priority(p.Namespace) <= priority(pod.Namespace) {
				spares = append(spares, spare{s.Instance, p, s.Since})
			}
		}
	}
	if len(spares) == 0 {
		return nil
	}
	nodes := &v1.NodeList{}
	if err := r.client.List(ctx, nodes); err != nil {
		return err
	}
	s := &search{pod: pod, leaving: ending, podsOn: podsOn(ctx, r.live)}
	for at := range nodes.Items {
		s.nodes = append(s.nodes, &nodes.Items[at])
	}
	victims := s.victims(spares)
	if s.err != nil {
		return s.err
	}
	for _, v := range victims {
		does := "ends"
		given := given{key: client.ObjectKeyFromObject(v.pod), node: v.pod.Spec.NodeName, by: time.Now().Add(2*graceOf(v.pod) + leavingLimit)} // drained, then deleted
		switch r.fleet.GiveUp(v.instance, "makes room for pod "+client.ObjectKeyFromObject(pod).String()) {
		case fleet.Nothing:
			continue
		case fleet.Memory:
			does, given.park, given.by = "is parked", true, time.Now().Add(parkingLimit)
		}
		r.given[v.pod.UID] = given
		r.tell(ctx, pod, v, does)
	}
	return nil
}

// podsOn returns a function that lists the pods of a node. Each node is listed only once.
func podsOn(ctx context.Context, live client.Reader) func(node string) ([]*v1.Pod, error) {
	known := map[string][]*v1.Pod{}
	return func(node string) ([]*v1.Pod, error) {
		if pods, ok := known[node]; ok {
			return pods, nil
		}
		list := &v1.PodList{}
		if err := live.List(ctx, list, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}); err != nil {
			return nil, err
		}
		pods := []*v1.Pod{}
		for at := range list.Items {
			pods = append(pods, &list.Items[at])
		}
		known[node] = pods
		return pods, nil
	}
}

// tell records in the events of both functions which replica has made room for which pod.
func (r *room) tell(ctx context.Context, pod *v1.Pod, v spare, does string) {
	note := fmt.Sprintf("Replica %s, which was in reserve, %s to make room for replica %s", v.instance, does, nameOf(r.pods, pod))
	for _, p := range []*v1.Pod{v.pod, pod} {
		f := &api.GPUFunction{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Labels[api.LabelFunction]}, f); err == nil {
			r.recorder.Eventf(f, nil, v1.EventTypeNormal, eventMadeRoom, "GiveUp", "%s", note)
		}
	}
}

// nameOf returns the name of the instance that a pod belongs to, or an empty text if there is none.
func nameOf(pods *Pods, pod *v1.Pod) string {
	function, id, err := instanceOf(pod)
	if err != nil {
		return ""
	}
	name := fleet.InstanceName(gateway.FunctionName{Namespace: pod.Namespace, Name: function}, scaling.ID(id))
	if key, found := pods.keyOf(name); !found || key != client.ObjectKeyFromObject(pod) {
		return ""
	}
	return name
}
