package controller

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// TestDecisions: each of the autoscaler's decisions becomes an event of the function, which tells cold starts from other
// decisions.
func TestDecisions(t *testing.T) {
	for name, test := range map[string]struct {
		action scaling.Action
		rule   scaling.Rule
		rate   scaling.Rate
		votes  int // of both kinds; 0: the default
		want   string
		then   scaling.Residency
	}{
		"cold start": {scaling.Create, scaling.FromZero, 1, 0, "Normal ScaledFromZero Create Create replica 3: requests came while there was no replica (load 1/s)", scaling.Hot},
		"load":       {scaling.Create, scaling.ScaleOut, 64.123, 0, "Normal Scaled Create Create replica 3: the load was above the capacity of all replicas in the last second (load 64/s)", scaling.Hot},
		"promote":    {scaling.Promote, scaling.Overflow, 70, 0, "Normal Scaled Promote Take replica 3 out of reserve: the load is above the capacity of the others (load 70/s)", scaling.Hot},
		"demote":     {scaling.Demote, scaling.ScaleIn, 2, 0, "Normal Scaled Demote Keep replica 3 in reserve: one replica fewer would have been enough for more than half of the window (load 2/s)", scaling.Hot},
		"votes out":  {scaling.Create, scaling.ScaleOut, 64, 1, "Normal Scaled Create Create replica 3: the load was above the capacity of all replicas in 1 of the last 20 s (load 64/s)", scaling.Hot},
		"votes in":   {scaling.Demote, scaling.ScaleIn, 2, 19, "Normal Scaled Demote Keep replica 3 in reserve: one replica fewer would have been enough in more than 19 of the last 20 s (load 2/s)", scaling.Hot},
		"delete":     {scaling.Delete, scaling.Unneeded, 0, 0, "Normal Scaled Delete Delete replica 3: it was not needed for as long as keepShared says (load 0/s)", scaling.Warm},
		"park":       {scaling.Demote, scaling.Unneeded, 0, 0, "Normal Scaled Demote Park replica 3: it was not needed for as long as keepShared says (load 0/s)", scaling.Warm},
		"parked":     {scaling.Delete, scaling.Unneeded, 0, 0, "Normal Scaled Delete Delete replica 3: it was not needed for as long as keepWarm says (load 0/s)", scaling.Cold},
		"other rule": {scaling.Delete, "a rule", 0, 0, "Normal Scaled Delete Delete replica 3: a rule (load 0/s)", scaling.Hot},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			recorder.Verbose = true
			f := function(t, nil)
			f.Spec.Scaling.Window = "20s"
			if test.votes > 0 {
				f.Spec.Scaling.ScaleOutVotes, f.Spec.Scaling.ScaleInVotes = new(test.votes), new(test.votes)
			}
			recordDecisions(recorder)(f, scaling.Decision{Action: test.action, Rule: test.rule, Instance: scaling.Instance{ID: 3, Residency: test.then}}, test.rate)
			want := test.want + " {kind=GPUFunction,apiVersion=serving.gshare.dev/v1alpha1} {kind=Pod,apiVersion=v1}"
			if got := <-recorder.Events; got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

// TestDecisionOfShare: the event of a decision names a pod with the share of the replica that the decision is about.
func TestDecisionOfShare(t *testing.T) {
	f, err := mixedFunction(t).CompleteForCluster(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range f.Variants() {
		recorder := &podName{}
		d := scaling.Decision{Action: scaling.Create, Instance: scaling.Instance{ID: 3, Configuration: scaling.Configuration{Share: v.Share()}}}
		recordDecisions(recorder)(f, d, 1)
		if want := fastPodOf(v).Name + "-3"; recorder.name != want {
			t.Errorf("pod %s, want %s", recorder.name, want)
		}
	}
}

// podName records the name of the pod in the last event.
type podName struct{ name string }

func (p *podName) Eventf(_, related runtime.Object, _, _, _, _ string, _ ...any) {
	p.name = related.(*v1.ObjectReference).Name
}
