package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// errCannotMove is the error for a replica that is to be whole on one MIG instance if there is no such instance.
var errCannotMove = errors.New("it cannot be whole on one MIG instance")

// cannotMove reports whether an error of create ends a move, as nobody waits for instances or for a quota in order to move.
func cannotMove(i *podInstance, err error) bool {
	return i.Move.From != 0 && (errors.Is(err, errCannotMove) || OverQuota(err) != "")
}

const (
	// movePause is how long the pod of a move may be without room: the instance was free, and may have been taken in the meantime. A scheduling gate may
	// hold the pod for no longer, as what opens the gate may be what the replica to be replaced has.
	movePause = 5 * time.Second
	// moveLimit is how long the pod of a move may be without a node if nobody says why. No other move begins in that time.
	moveLimit = time.Minute
)

// moveEnd returns when to give up the pod of a move that has no node, and why.
func moveEnd(pod *v1.Pod) (at time.Time, why string) {
	if c := unschedulable(pod); c != nil {
		return c.LastTransitionTime.Add(movePause), "there was no room for it: " + c.Message
	}
	if gates := pod.Spec.SchedulingGates; len(gates) > 0 {
		return pod.CreationTimestamp.Add(movePause), "it was held by the scheduling gate " + gates[0].Name
	}
	return pod.CreationTimestamp.Add(moveLimit), fmt.Sprintf("it had no node within %v: %s", moveLimit, waitsFor(pod))
}

// endMove gives up the pod of a move if it gets no node: the replica that it was to replace goes on. It reports whether reconciliation of the pod is to
// end here.
func endMove(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) (ended bool, err error) {
	if i.Move.From == 0 || pod.Spec.NodeName != "" {
		return false, nil
	}
	at, why := moveEnd(pod)
	if left := time.Until(at); left > 0 {
		p.queue.AddAfter(i.Name, left)
		return false, nil
	}
	// If the pod has been bound in the meantime, its resource version differs, and it is not deleted.
	err = p.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if apierrors.IsConflict(err) {
		p.queue.AddAfter(i.Name, time.Second)
		return true, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	return true, p.end(ctx, i, fleet.Failed, why)
}

// whole returns the cut of a pod that consists of one instance of a profile.
func (c cutter) whole(ctx context.Context, f *api.GPUFunction, profile string) (*cut, error) {
	f = c.current(ctx, f)
	function := pipelineOf(f)
	_, kinds, err := c.fragments(ctx, function)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if k.Name != profile {
			continue
		}
		ranking, err := pipeline.Rank(function, []pipeline.Kind{k})
		if err != nil {
			return nil, err
		}
		a, err := ranking.Monolithic([]pipeline.Slice{{ID: profile, Kind: k}}, pipeline.Demand{SLO: f.Spec.SLO.Latency.Value()})
		if err != nil {
			return nil, err
		}
		return newCut(ranking, a, f), nil
	}
	return nil, fmt.Errorf("no node has an instance of %.64q any more", profile)
}

// layoutOf returns the layout of a pod that is cut over several instances, with the instances' profiles in place of the containers. A variable of the
// same name in a user's template does not count, as there are no such containers.
func layoutOf(pod *v1.Pod) (l pipeline.Layout, cut bool) {
	server, text := &pod.Spec.Containers[0], ""
	for _, v := range server.Env { // the last one counts
		if v.Name == stagesVariable {
			text = strings.ReplaceAll(v.Value, "$$", "$")
		}
	}
	if json.Unmarshal([]byte(text), &l) != nil {
		return pipeline.Layout{}, false
	}
	containers := map[string]bool{server.Name: true}
	for _, c := range pod.Spec.InitContainers {
		if strings.HasPrefix(c.Name, api.StagePrefix) {
			containers[c.Name] = true
		}
	}
	parts := len(containers)
	for _, stage := range l.Stages {
		for at := range stage {
			name := stage[at].Slice
			if !containers[name] {
				return pipeline.Layout{}, false
			}
			delete(containers, name)
			stage[at].Slice = pod.Annotations[kube.AnnotationContainerSlice+name]
		}
	}
	return l, parts > 1 && len(containers) == 0
}

// setMovesFrom records in a pod which instance it is to replace.
func setMovesFrom(pod *v1.Pod, m fleet.Move) {
	if m.From != 0 {
		setAnnotation(&pod.ObjectMeta, api.AnnotationMovesFrom, strconv.Itoa(int(m.From)))
	}
}

// movesFrom returns the instance that a pod is to replace, 0 if there is none.
func movesFrom(pod *v1.Pod) scaling.ID {
	from, err := strconv.Atoi(pod.Annotations[api.AnnotationMovesFrom])
	if err != nil || from < 1 {
		return 0
	}
	return scaling.ID(from)
}
