package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turns decides which replica of functions with class swap has its turn on each slice, depending on what waits for them at the gateways. The
// decisions are kept in the pods, as their residency, so that another leader can go on from there. The agents ensure that only one replica at a time
// has a slice.
type turns struct {
	pods  *Pods
	load  func(gateway.FunctionName) gateway.Load
	began time.Time

	known map[string]turnOf // by name of the replica
}

// turn is the part of an instance in taking turns. The lock of Pods guards it.
type turn struct {
	adopted bool            // it was adopted with a pod that takes turns, whatever its function wants now
	level   residency.Level // Hot if it is its turn, else Warm; Cold: not decided yet; Unknown: it is to end
	refused int64           // residency.Wanted.Seq of the last change that its agent has refused
}

// turnOf is what turns remembers about a replica. Times count from turns.began.
type turnOf struct {
	stage   residency.Stage
	since   time.Duration // when it entered the stage, or began to serve in this turn
	serves  time.Duration // when it began to serve in this turn, even if it is not Ready at times; 0: not yet
	waiting time.Duration // since when requests wait for it; 0: none do
	begin   time.Duration // residency.InTurn.Begin
	used    time.Duration // when its last turn ended
	pause   time.Duration // until when it gets no turn, as its agent had no room for it
	refused int64         // turn.refused
}

var turnPolicy = residency.ClusterTurns()

// leaveLimit is how long a replica may take to give its memory back after its turn: it may have a request that does not end, or a gateway or its
// node's agent may be out of reach. Until then no other replica can have a turn.
const leaveLimit = 5 * time.Minute

// Run decides each second until ctx ends.
func (t *turns) Run(ctx context.Context) {
	ticker := time.NewTicker(residency.TurnPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.review(ctx)
		}
	}
}

// review gives and takes away turns on all slices.
func (t *turns) review(ctx context.Context) {
	now := time.Since(t.began).Round(residency.TurnPeriod) // a review that comes slightly early must not make a turn last until the next one
	bySlice, known := map[string][]residency.InTurn{}, map[string]turnOf{}
	for name, i := range placedInstances(t.pods) {
		pod := &v1.Pod{}
		if err := t.pods.client.Get(ctx, i.pod, pod); err != nil || pod.UID != i.uid || !kube.TakesTurns(pod) || kube.Ended(pod) {
			continue // the next review finds it
		}
		placement, _, _ := kube.PlacementOf(pod) // TakesTurns has read it without error
		slice := pod.Spec.NodeName + "/" + placement.Containers[0].VGPUs[0].Slice
		one, remembered := t.look(now, name, i, pod)
		bySlice[slice], known[name] = append(bySlice[slice], one), remembered
	}
	t.known = known
	for _, all := range bySlice {
		next, any := residency.NextTurn(now, all, turnPolicy)
		for _, one := range all {
			level := residency.Warm
			switch {
			case any && one.ID == next:
				level = residency.Hot
			case one.Stage == residency.Leaving && now-one.Since >= leaveLimit:
				level = residency.Unknown
			}
			setTurn(t.pods, one.ID, level)
		}
	}
}

// look returns the state of a replica with respect to its turn, and what to remember about it.
func (t *turns) look(now time.Duration, name string, i placedInstance, pod *v1.Pod) (residency.InTurn, turnOf) {
	load, last := t.load(i.function), t.known[name]
	one := residency.InTurn{ID: name, Stage: stageOf(pod), Waiting: load.Waiting, InFlight: load.InFlight}
	if _, found := t.known[name]; !found || one.Stage != last.stage {
		if one.Stage == residency.Waiting && found {
			last.used, last.waiting = now, 0 // requests that still wait come after those of others that have waited in the meantime
		} else if _, r, _ := kube.ResidencyOf(pod); one.Stage == residency.Waiting && r.Level == residency.Warm {
			last.used = 1 // it had a turn under an earlier leader
		}
		last.stage, last.since, last.begin = one.Stage, now, 0
		switch {
		case one.Stage == residency.Waiting:
			last.serves = 0
		case one.Stage == residency.Beginning && !hasStarted(pod): // a replica that was parked does not load its model again
			last.begin = allowedStart(&pod.Spec.Containers[0])
		case one.Stage == residency.Serving && last.serves == 0:
			last.serves = now
		case one.Stage == residency.Serving: // not being Ready now and then does not make a turn longer
			last.since = last.serves
		}
	}
	if i.refused != last.refused { // remembered here, as the agent may have answered a later change since
		last.pause, last.refused = now+turnPolicy.For, i.refused
	}
	if one.Stage == residency.Waiting && last.used == 0 { // it replaces another replica of its function, whose requests it is to take over
		one.Waiting += load.InFlight
	}
	switch {
	case one.Waiting == 0:
		last.waiting = 0
	case last.waiting == 0:
		last.waiting = now
	}
	one.Since, one.Begin, one.Used, one.Due = last.since, last.begin, last.used, last.waiting+i.latency
	if now < last.pause {
		one.Waiting, one.Used = 0, max(1, last.used)
	}
	return one, last
}

// stageOf returns the stage of a pod's turn. The pod serves only when it is Ready, since a server that is still loading could not be parked.
func stageOf(p *v1.Pod) residency.Stage {
	w, r, err := kube.ResidencyOf(p)
	_, ready := addressOf(p)
	switch {
	case err == nil && w.Level == residency.Warm && r.Level <= residency.Warm:
		return residency.Waiting
	case err == nil && w.Level == residency.Warm:
		return residency.Leaving
	case ready && r.Level.Serves():
		return residency.Serving
	}
	return residency.Beginning
}

// hasStarted reports whether the startupProbe of a pod's server has succeeded, or the server runs and has none.
func hasStarted(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == p.Spec.Containers[0].Name && c.Started != nil && *c.Started
	})
}

// takesTurns reports whether a pod takes turns with others on its slice, or will once it is placed.
func takesTurns(p *v1.Pod) bool {
	if p.Annotations[kube.AnnotationPlacement] != "" {
		return kube.TakesTurns(p)
	}
	return p.Annotations[kube.AnnotationIsolation] == string(share.Swap)
}

// writeTurn takes a pod one step nearer to having its turn or to giving its memory back, by the rules of package residency.
func writeTurn(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) error {
	p.mu.Lock()
	turn := i.turn.level
	p.mu.Unlock()
	w, r, err := kube.ResidencyOf(pod)
	switch {
	case turn == residency.Unknown:
		return restartForTurn(ctx, p, i, pod, fmt.Sprintf("it has not given its memory back within %v, as it has requests, or a gateway or its agent is out of reach", leaveLimit))
	case turn == residency.Warm && (err != nil || w.Level == residency.Cold):
		return restartForTurn(ctx, p, i, pod, "somebody has changed the annotation "+kube.AnnotationResidency+" of its pod "+pod.Name)
	case turn == residency.Warm && isWaking(pod) && !r.Answers(w) && time.Since(i.parked) >= turnPolicy.Begin:
		return restartForTurn(ctx, p, i, pod, "its server does not take its memory again, as the events of its pod "+pod.Name+" say")
	case err != nil:
		p.log.Warn("residency of a pod is malformed", "replica", i.Name, "error", err)
		return nil
	case w.Level == residency.Warm:
		i.parked = time.Now()
	}
	if r.Level == residency.Cold { // the pod has not started, and nobody sends requests to it
		switch {
		case turn == residency.Hot && w.Level == residency.Warm:
			if next, ok := residency.Change(w, r, turn); ok {
				return writeWanted(ctx, p.client, pod, next)
			}
		case turn == residency.Warm && w.Level > residency.Warm:
			return writeWanted(ctx, p.client, pod, residency.TakeBack(w))
		}
		return nil
	}
	if r.CannotPark(w) {
		return restartForTurn(ctx, p, i, pod, "its server does not give its memory back, as the events of its pod "+pod.Name+" say")
	}
	task := residency.Review(w, r, true, hasStopped(p, i, w.Seq))
	switch task.Action {
	case residency.Drain:
		if turn != residency.Hot {
			awaitStopped(ctx, p, i, w.Seq)
			return nil
		}
	case residency.Write:
		if r.Refused && r.Answers(w) {
			p.mu.Lock()
			i.turn.level, i.turn.refused = residency.Warm, w.Seq // until turns decides again
			p.mu.Unlock()
		}
		return writeWanted(ctx, p.client, pod, task.Wanted)
	}
	i.stopAsking()
	if turn == residency.Cold {
		return nil
	}
	if next, ok := residency.Change(w, r, turn); ok {
		return writeWanted(ctx, p.client, pod, next)
	}
	return nil
}

// awaitsTurn reports whether a pod has not started or is parked because it is not its turn, or because its node's agent has not acted on the turn yet.
func awaitsTurn(p *v1.Pod) bool {
	w, r, err := kube.ResidencyOf(p)
	return err == nil && (r.Level == residency.Cold && !r.Refused || w.Level == residency.Warm && r.Level == residency.Warm) && takesTurns(p)
}

// reviewWaiting handles a replica that waits for its turn and is not Ready. If its server has failed while it was parked, it would restart without
// memory. So it is ended, and the next one starts in its turn.
func reviewWaiting(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) error {
	failure := api.Failure(pod)
	if _, r, _ := kube.ResidencyOf(pod); r.Level == residency.Cold {
		if ended, err := endOverdue(ctx, p, i, pod); err != nil || ended {
			return err
		}
		message := cmp.Or(failure, "waits for its turn")
		if pod.Spec.NodeName == "" {
			message = api.WaitsFor(pod)
		}
		p.report(ctx, i, fleet.Event{Kind: fleet.Starting, Message: message})
		return writeTurn(ctx, p, i, pod)
	}
	if failure == "" {
		return writeTurn(ctx, p, i, pod)
	}
	if err := p.delete(ctx, pod); err != nil {
		return err
	}
	return p.end(ctx, i, fleet.Failed, "has failed while it waited for its turn: "+failure)
}

// restartForTurn ends a replica that cannot be parked, so that others get their turns. The fleet starts another one, which waits for its own turn.
func restartForTurn(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod, why string) error {
	if err := p.delete(ctx, pod); err != nil {
		return err
	}
	p.recorder.Eventf(i.Function, pod, v1.EventTypeWarning, eventCannotPark, "Delete", "Replica %s is restarted for each turn: %s", i.Name, why)
	return p.end(ctx, i, fleet.Failed, why)
}

// placedInstance is an instance that has a pod.
type placedInstance struct {
	pod      client.ObjectKey
	uid      types.UID
	function gateway.FunctionName
	latency  time.Duration // the objective of its function
	refused  int64         // turn.refused
}

// placedInstances returns the instances of class swap that have pods and are not to end.
func placedInstances(p *Pods) map[string]placedInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]placedInstance{}
	for name, i := range p.inTurn {
		if i.uid != "" && !i.deleted && !i.silent {
			function := gateway.FunctionName{Namespace: i.Function.Namespace, Name: i.Function.Name}
			all[name] = placedInstance{i.pod, i.uid, function, i.Function.Spec.SLO.Latency.Value(), i.turn.refused}
		}
	}
	return all
}

// setTurn gives an instance its turn (Hot), takes it away (Warm), or ends the instance because it has not given its memory back (Unknown).
func setTurn(p *Pods, name string, level residency.Level) {
	p.mu.Lock()
	i := p.instances[name]
	changed := i != nil && i.turn.level != level
	if changed {
		i.turn.level = level
	}
	p.mu.Unlock()
	if changed {
		p.queue.Add(name)
	}
}
