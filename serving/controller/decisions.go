package controller

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// recordDecisions returns a function that records decisions of autoscalers as events of the function's object. Equal decisions about the same pod
// within some minutes form a series, which keeps the text of the first.
func recordDecisions(r events.EventRecorder) func(*api.GPUFunction, scaling.Decision, scaling.Rate) {
	return func(f *api.GPUFunction, d scaling.Decision, rate scaling.Rate) {
		reason := api.EventScaled
		if d.Rule == scaling.FromZero {
			reason = api.EventScaledFromZero
		}
		// The key of a series contains this name. If it is taken, the pod gets a longer one.
		pod := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: f.Namespace, Name: fmt.Sprintf("%s-%d", fastPodOf(withShare(f, d.Instance.Configuration.Share)).Name, d.Instance.ID)}
		r.Eventf(f, pod, v1.EventTypeNormal, reason, actions[d.Action], "%s", decisionText(&f.Spec.Scaling, d, rate))
	}
}

// withShare returns the variant of a function with a share, or the function itself if there is none.
func withShare(f *api.GPUFunction, s share.Share) *api.GPUFunction {
	for _, v := range f.Variants() {
		if v.Share() == s {
			return v
		}
	}
	return f
}

// actions are the actions in events, where they begin with a capital letter.
var actions = map[scaling.Action]string{scaling.Create: "Create", scaling.Promote: "Promote", scaling.Demote: "Demote", scaling.Delete: "Delete"}

// decisionText returns a decision in words for users.
func decisionText(s *api.Scaling, d scaling.Decision, rate scaling.Rate) string {
	done := map[scaling.Action]string{
		scaling.Create: "Create replica %d", scaling.Promote: "Take replica %d out of reserve", scaling.Demote: "Keep replica %d in reserve", scaling.Delete: "Delete replica %d",
	}[d.Action]
	if d.Action == scaling.Demote && d.Instance.Residency == scaling.Warm {
		done = "Park replica %d"
	}
	reason := why(s, d.Rule)
	if d.Rule == scaling.Unneeded && d.Instance.Residency == scaling.Cold { // the replica was parked
		reason = "it was not needed for as long as keepWarm says"
	}
	return fmt.Sprintf(done, d.Instance.ID) + ": " + reason + fmt.Sprintf(" (load %s/s)", rounded(float64(rate)))
}

// why returns the reason of a decision in words for users.
func why(s *api.Scaling, r scaling.Rule) string {
	out, in := s.Votes()
	switch {
	case r == scaling.ScaleOut && s.ScaleOutVotes != nil:
		return fmt.Sprintf("the load was above the capacity of all replicas in %d of the last %d s", out, s.Samples())
	case r == scaling.ScaleIn && s.ScaleInVotes != nil:
		return fmt.Sprintf("one replica fewer would have been enough in more than %d of the last %d s", in, s.Samples())
	}
	return cmp.Or(rules[r], string(r))
}

// rules are the reasons of decisions, in the words of docs/serving.md.
var rules = map[scaling.Rule]string{
	scaling.FromZero:  "requests came while there was no replica",
	scaling.Overflow:  "the load is above the capacity of the others",
	scaling.ScaleOut:  "the load was above the capacity of all replicas in the last second",
	scaling.ScaleIn:   "one replica fewer would have been enough for more than half of the window",
	scaling.Displaced: "only one replica at a time is kept in reserve",
	scaling.Work:      "requests that take long hold all places, or soon will",
	scaling.Refused:   "more requests are refused than the objective allows",
	scaling.Unneeded:  "it was not needed for as long as keepShared says",
	scaling.Bounds:    "there were fewer than minReplicas",
}
