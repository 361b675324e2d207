package controller

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// writeResidency takes a pod one step nearer to the residency that the fleet wants, by the rules of package residency. The next step follows when the
// agent of its node has answered, which changes the pod.
//
// If a pod cannot be made Hot, its replacement is up to the fleet, which is told once for each raise. A new leader does not know what the fleet was
// told. It takes the pod for Shared (residencyOf), so that its fleet starts another replacement only if the load needs one more.
func (p *Pods) writeResidency(ctx context.Context, i *podInstance, pod *v1.Pod, level scaling.Residency) error {
	w, r, err := kube.ResidencyOf(pod)
	if err != nil { // somebody else has changed it: it counts as Hot everywhere, and the agent does not answer
		p.log.Warn("residency of a pod is malformed", "replica", i.Name, "error", err)
		return nil
	}
	if w.Level == residency.Warm {
		i.parked = time.Now()
	}
	if r.CannotPark(w) && i.refused != w.Seq {
		cannotPark(ctx, p, i)
		i.refused = w.Seq
	}
	task := residency.Review(w, r, i.refused == w.Seq, level == scaling.Warm && hasStopped(p, i, w.Seq))
	if task.Action == residency.Drain && level == scaling.Warm {
		awaitStopped(ctx, p, i, w.Seq)
		return nil
	}
	if task.Action == residency.Replace {
		p.refuse(ctx, i, pod, r.Level)
		i.refused = w.Seq
		task = residency.Review(w, r, true, false)
	}
	if task.Action == residency.Write {
		return writeWanted(ctx, p.client, pod, task.Wanted)
	}
	if task.Action != residency.Drain || level != scaling.Warm {
		i.stopAsking()
	}
	if next, ok := residency.Change(w, r, levels[level]); ok {
		return writeWanted(ctx, p.client, pod, next)
	}
	return nil
}

// cannotPark tells the fleet and the owner of a function that the server of an instance does not give its memory back.
func cannotPark(ctx context.Context, p *Pods, i *podInstance) {
	p.mu.Lock()
	i.Residency = scaling.Shared
	p.mu.Unlock()
	why := "cannot be parked, as the events of its pod " + i.pod.Name + " say"
	p.recorder.Eventf(i.Function, nil, v1.EventTypeWarning, eventCannotPark, "Demote", "Replica %s %s: replicas are stopped instead", i.Name, why)
	p.send(ctx, fleet.Event{Instance: i.Name, Kind: fleet.CannotPark, Message: why})
}

// hasStopped reports whether no gateway sends requests to an instance any more, as the wanted level with sequence number seq demands.
func hasStopped(p *Pods, i *podInstance, seq int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return i.stopped == seq
}

// awaitStopped queues an instance when no gateway sends requests to it any more, as the wanted level with sequence number seq demands. It considers
// the gateways that are known after that level was written.
func awaitStopped(ctx context.Context, p *Pods, i *podInstance, seq int64) {
	if i.asked == seq {
		return
	}
	i.stopAsking()
	i.asked = seq
	ctx, i.stopAsk = context.WithCancel(ctx)
	function, pod := gateway.FunctionName{Namespace: i.Function.Namespace, Name: i.Function.Name}, i.pod.Name
	go func() {
		if p.waitStopped(ctx, function, pod, seq) != nil {
			return // another level is wanted by now, or this process ends
		}
		p.mu.Lock()
		i.stopped = seq
		p.mu.Unlock()
		p.queue.Add(i.Name)
	}()
}

// stopAsking ends the wait that awaitStopped has begun.
func (i *podInstance) stopAsking() {
	if i.stopAsk != nil {
		i.stopAsk()
	}
	i.stopAsk, i.asked = nil, 0
}

// refuse tells the fleet and the owner of a function that an instance stays Shared or Warm. Until the fleet says otherwise, that is the residency
// that is wanted: the raise would otherwise be tried again before the fleet has heard of this refusal.
func (p *Pods) refuse(ctx context.Context, i *podInstance, pod *v1.Pod, has residency.Level) {
	stays, why := scaling.Shared, "its slice on node "+pod.Spec.NodeName+" has no room for its SM-time"
	if has == residency.Warm {
		stays, why = scaling.Warm, why+" or its memory"
	}
	p.mu.Lock()
	i.Residency = stays
	p.mu.Unlock()
	note := fmt.Sprintf("Replica %s stays %v, and another one starts in its place: %s", i.Name, stays, why)
	if stays == scaling.Warm {
		p.recorder.Eventf(i.Function, nil, v1.EventTypeNormal, eventStaysWarm, "Replace", "%s", note)
	} else {
		p.recorder.Eventf(i.Function, nil, v1.EventTypeNormal, eventStaysShared, "Replace", "%s", note)
	}
	p.send(ctx, fleet.Event{Instance: i.Name, Kind: fleet.NoRoom, Residency: stays, Message: why})
}

// writeWanted writes what is wanted of a pod into its annotation, if the pod has not changed since it was read.
func writeWanted(ctx context.Context, c client.Client, pod *v1.Pod, w residency.Wanted) error {
	changed := pod.DeepCopy()
	if err := setWanted(changed, w); err != nil {
		return err
	}
	return c.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
}

func setWanted(p *v1.Pod, w residency.Wanted) error {
	text, err := w.Encode()
	if err != nil {
		return err
	}
	setAnnotation(&p.ObjectMeta, kube.AnnotationResidency, text)
	return nil
}

// isWaking reports whether a pod is parked and is to serve again. Its container may be Ready all the time, but its server does not have its memory yet.
func isWaking(p *v1.Pod) bool {
	w, r, _ := kube.ResidencyOf(p) // one that is malformed counts as Hot
	return w.Level.Serves() && r.Level == residency.Warm
}

// addressOf returns the host:port for requests to a pod, and whether the pod accepts requests.
func addressOf(p *v1.Pod) (address string, serves bool) {
	address, ready := api.Address(p)
	return address, ready && (!isWaking(p) || takesTurns(p)) // a pod that takes turns serves from the fleet's point of view, whoever's turn it is
}

// waitsFor returns what a pod that accepts no requests is waiting for.
func waitsFor(p *v1.Pod) string {
	if isWaking(p) {
		return "waits until its server has its memory again"
	}
	return api.WaitsFor(p)
}

// startRefused reports whether a pod was placed where there was no longer room for it, so that it has not started.
func startRefused(p *v1.Pod) bool {
	w, r, _ := kube.ResidencyOf(p)
	return r.Refused && r.Answers(w) && r.Level == residency.Cold
}

var levels = map[scaling.Residency]residency.Level{
	scaling.Hot: residency.Hot, scaling.Shared: residency.Shared, scaling.Warm: residency.Warm, scaling.Cold: residency.Cold,
}

// residencyOf returns the residency wanted of a pod, or the one that it keeps because there was no room for that.
func residencyOf(p *v1.Pod) scaling.Residency {
	w, r, _ := kube.ResidencyOf(p) // one that is malformed counts as Hot
	level := w.Level
	if r.Refused && r.Answers(w) {
		level = r.Level
	}
	for known, l := range levels {
		if l == level {
			return known
		}
	}
	return scaling.Hot
}

func countResidency(c *api.ResidencyCounts, p *v1.Pod) {
	switch residencyOf(p) {
	case scaling.Hot:
		c.Hot++
	case scaling.Shared:
		c.Shared++
	case scaling.Warm:
		c.Warm++
	}
}
