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

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turns decides which replica of functions with class swap has the turn on each slice, by what waits for them at the gateways. What it decides is in the
// pods, as their residency, so that another leader goes on from there. The agents hold it to one at a time.
type turns struct {
	pods  *Pods
	load  func(gateway.FunctionName) gateway.Load
	began time.Time

	known map[string]turnOf // by replica
}

// turn is how an instance takes turns. The lock of Pods guards it.
type turn struct {
	adopted bool            // it is of Adopt, and its pod takes turns, whatever its function wants now
	level   residency.Level // Hot if it has one, else Warm; Cold: not decided; Unknown: it is to end
	refused int64           // residency.Wanted.Seq of the last one that its agent has refused
}

// turnOf is what is remembered of a replica. Times are since turns.began.
type turnOf struct {
	stage   residency.Stage
	since   time.Duration // that it is in the stage, or serves in this turn
	serves  time.Duration // since when it serves in this turn, though not Ready at times; 0: it has not yet
	waiting time.Duration // that requests wait for it; 0: none does
	begin   time.Duration // residency.InTurn.Begin
	used    time.Duration // when its last turn ended
	pause   time.Duration // until which it gets none, as its agent had no room for it
	refused int64         // turn.refused
}

var turnPolicy = residency.ClusterTurns()

// leaveLimit is how long a replica may take to give its memory back after its turn: it may have a request that does not end, or a gateway or the agent of its
// node may be out of reach. Nobody else can have a turn until then.
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

// review gives and takes turns on all slices.
func (t *turns) review(ctx context.Context) {
	now := time.Since(t.began).Round(residency.TurnPeriod) // a look that is a moment early must not make a turn last until the next one
	bySlice, known := map[string][]residency.InTurn{}, map[string]turnOf{}
	for name, i := range placedInstances(t.pods) {
		pod := &v1.Pod{}
		if err := t.pods.client.Get(ctx, i.pod, pod); err != nil || pod.UID != i.uid || !kube.TakesTurns(pod) || kube.Ended(pod) {
			continue // the next look finds it
		}
		placement, _, _ := kube.PlacementOf(pod) // TakesTurns has read it
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

// look returns how a replica is with its turn, and what is to be remembered of it.
func (t *turns) look(now time.Duration, name string, i placedInstance, pod *v1.Pod) (residency.InTurn, turnOf) {
	load, last := t.load(i.function), t.known[name]
	one := residency.InTurn{ID: name, Stage: stageOf(pod), Waiting: load.Waiting, InFlight: load.InFlight}
	if _, found := t.known[name]; !found || one.Stage != last.stage {
		if one.Stage == residency.Waiting && found {
			last.used, last.waiting = now, 0 // those that still wait come after others that have waited meanwhile
		} else if _, r, _ := kube.ResidencyOf(pod); one.Stage == residency.Waiting && r.Level == residency.Warm {
			last.used = 1 // it had one under an earlier leader
		}
		last.stage, last.since, last.begin = one.Stage, now, 0
		switch {
		case one.Stage == residency.Waiting:
			last.serves = 0
		case one.Stage == residency.Beginning && !hasStarted(pod): // one that was parked does not load again
			last.begin = allowedStart(&pod.Spec.Containers[0])
		case one.Stage == residency.Serving && last.serves == 0:
			last.serves = now
		case one.Stage == residency.Serving: // who is not Ready now and then has no longer turn than others
			last.since = last.serves
		}
	}
	if i.refused != last.refused { // the agent may have answered what was wanted next since
		last.pause, last.refused = now+turnPolicy.For, i.refused
	}
	if one.Stage == residency.Waiting && last.used == 0 { // it replaces another one of its function, whose requests it is to take over
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

// stageOf returns how far a pod is with its turn. It serves when it is Ready, since what is still loading could not be parked.
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

// hasStarted reports whether the startupProbe of a pod's server has succeeded, or the server runs without one.
func hasStarted(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == p.Spec.Containers[0].Name && c.Started != nil && *c.Started
	})
}

// takesTurns reports whether a pod takes turns with others on its slice, or is to.
func takesTurns(p *v1.Pod) bool {
	if _, placed := p.Annotations[kube.AnnotationPlacement]; placed {
		return kube.TakesTurns(p)
	}
	return p.Annotations[kube.AnnotationIsolation] == string(share.Swap)
}

// writeTurn takes a pod one step nearer to having its turn, or to giving the memory back, as package residency has it.
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
	if r.Level == residency.Cold { // it has not started, and nobody sends requests to it
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
			i.turn.level, i.turn.refused = residency.Warm, w.Seq // until it is decided again
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

// awaitsTurn reports whether a pod has not started yet, or is parked, since it is not its turn or its node's agent has not begun that.
func awaitsTurn(p *v1.Pod) bool {
	w, r, err := kube.ResidencyOf(p)
	return err == nil && (r.Level == residency.Cold && !r.Refused || w.Level == residency.Warm && r.Level == residency.Warm) && takesTurns(p)
}

// reviewWaiting goes on with a replica that awaits its turn and is not Ready. One whose server has failed when it was parked would start without memory, and
// is ended: the next one starts in its turn.
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

// restartForTurn ends a replica that cannot be parked, so that others have their turns. The fleet starts another one, which waits for its own.
func restartForTurn(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod, why string) error {
	if err := p.delete(ctx, pod); err != nil {
		return err
	}
	p.recorder.Eventf(i.Function, pod, v1.EventTypeWarning, eventCannotPark, "Delete", "Replica %s is started anew for each turn: %s", i.Name, why)
	return p.end(ctx, i, fleet.Failed, why)
}

// placedInstance is an instance that has a pod.
type placedInstance struct {
	pod      client.ObjectKey
	uid      types.UID
	function gateway.FunctionName
	latency  time.Duration // that its function is to have
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

// setTurn has the pod of an instance have its turn (Hot), or give it back (Warm), or end since it has not done so (Unknown).
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
