package controller

import (
	"testing"

	"k8s.io/client-go/tools/events"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// TestDecisions: what the autoscaler decides is an event of the function, in which a cold start can be told from other decisions.
func TestDecisions(t *testing.T) {
	for name, test := range map[string]struct {
		action scaling.Action
		rule   scaling.Rule
		rate   scaling.Rate
		votes  int // of both kinds; 0: the default
		want   string
	}{
		"cold start": {scaling.Create, scaling.FromZero, 1, 0, "Normal ScaledFromZero Create Create replica 3: requests came, and there was none (load 1/s)"},
		"load":       {scaling.Create, scaling.ScaleOut, 64.123, 0, "Normal Scaled Create Create replica 3: for half of the window the load was above what all can do (load 64/s)"},
		"promote":    {scaling.Promote, scaling.Overflow, 70, 0, "Normal Scaled Promote Take replica 3 out of reserve: the load is above what the others can do (load 70/s)"},
		"demote":     {scaling.Demote, scaling.ScaleIn, 2, 0, "Normal Scaled Demote Keep replica 3 in reserve: for three quarters of the window the load was below what one fewer can do (load 2/s)"},
		"votes out":  {scaling.Create, scaling.ScaleOut, 64, 1, "Normal Scaled Create Create replica 3: in 1 of the 20 s of the window the load was above what all can do (load 64/s)"},
		"votes in":   {scaling.Demote, scaling.ScaleIn, 2, 19, "Normal Scaled Demote Keep replica 3 in reserve: in more than 19 of the 20 s of the window the load was below what one fewer can do (load 2/s)"},
		"delete":     {scaling.Delete, scaling.Unneeded, 0, 0, "Normal Scaled Delete Delete replica 3: it was not needed for as long as keepShared says (load 0/s)"},
		"other rule": {scaling.Delete, "a rule", 0, 0, "Normal Scaled Delete Delete replica 3: a rule (load 0/s)"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			recorder.Verbose = true
			f := function(t, nil)
			if test.votes > 0 {
				f.Spec.Scaling.ScaleOutVotes, f.Spec.Scaling.ScaleInVotes = new(test.votes), new(test.votes)
			}
			recordDecisions(recorder)(f, scaling.Decision{Action: test.action, Rule: test.rule, Instance: scaling.Instance{ID: 3}}, test.rate)
			want := test.want + " {kind=GPUFunction,apiVersion=serving.gshare.dev/v1alpha1} {kind=Pod,apiVersion=v1}"
			if got := <-recorder.Events; got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}
