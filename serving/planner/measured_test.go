package planner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// profileOf returns a complete profile of a function, whose batches take 3 ms and 6 ms a row on 12 % of the SMs, times a factor.
func profileOf(name, function string, factor int64, changes ...func(*api.GPUProfile)) *api.GPUProfile {
	p := &api.GPUProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name},
		Spec:       api.GPUProfileSpec{FunctionRef: &api.FunctionReference{Name: function}},
		Status: api.GPUProfileStatus{
			Conditions:  []metav1.Condition{{Type: api.ConditionComplete, Status: metav1.ConditionTrue, Reason: api.ReasonMeasured}},
			Fingerprint: &api.ProfileFingerprint{Model: "H200"},
			Recommended: &api.ProfileRecommendation{SM: 12, Quota: 100, Memory: "1536Mi", MaxBatch: 8, RequestsPerSecond: 100},
		},
	}
	for _, batch := range []int{1, 2, 4, 8} {
		mean := factor * int64(3000+6000*batch)
		p.Status.Points = append(p.Status.Points, api.ProfilePoint{SM: 12, Quota: 100, Batch: batch, MeanMicroseconds: mean, P99Microseconds: mean * 12 / 10})
	}
	p.Status.Points = append(p.Status.Points, api.ProfilePoint{SM: 24, Quota: 100, Batch: 1, Failed: "the server ended"})
	for _, change := range changes {
		change(p)
	}
	return p
}

func unfinished(p *api.GPUProfile) { p.Status.Conditions[0].Status = metav1.ConditionFalse }

func stale(p *api.GPUProfile) {
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: api.ConditionStale, Status: metav1.ConditionTrue, Reason: "Changed", Message: "another driver"})
}

// TestMeasured: of a model that no data names, what a GPUProfile of the functions has measured is planned with.
func TestMeasured(t *testing.T) {
	const none = "False InvalidData: spec.model: there are 0 profiles of vision, want 1, and no GPUProfile of the plan's functions is complete"
	for name, test := range map[string]struct {
		profiles []*api.GPUProfile
		named    bool   // by the data
		absent   bool   // there is no data
		want     string // reason
		note     string
	}{
		"measured":          {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1)}, want: "True Planned", note: "GPUProfile a on H200, for batches of up to 8"},
		"without data":      {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1)}, absent: true, want: "True Planned", note: "GPUProfile a "},
		"named":             {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1)}, named: true, want: "True Planned"},
		"none":              {want: none},
		"not complete":      {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, unfinished)}, want: none},
		"of another":        {profiles: []*api.GPUProfile{profileOf("a", "mail", 1)}, want: none},
		"of no function":    {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, func(p *api.GPUProfile) { p.Spec.FunctionRef = nil })}, want: none},
		"no share":          {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, func(p *api.GPUProfile) { p.Status.Recommended = nil })}, want: none},
		"stale":             {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, stale)}, want: "True Planned", note: "GPUProfile a is Stale: another driver"},
		"stale beside":      {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, stale), profileOf("b", "search", 1)}, want: "True Planned", note: "GPUProfile b "},
		"fewer trials":      {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, func(p *api.GPUProfile) { p.Status.Points = p.Status.Points[:4] }), profileOf("b", "search", 1)}, want: "True Planned", note: "GPUProfile b "},
		"no such batch":     {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, func(p *api.GPUProfile) { p.Status.Recommended.MaxBatch = 16 })}, want: "False InvalidData: GPUProfile a: curves: 0 of them"},
		"too slow":          {profiles: []*api.GPUProfile{profileOf("a", "checkout", 100)}, want: "False NotFeasible"},
		"no line at all":    {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, func(p *api.GPUProfile) { p.Status.Points[2].MeanMicroseconds *= 3 })}, want: "True Planned", note: "are no line over the batch"},
		"memory is invalid": {profiles: []*api.GPUProfile{profileOf("a", "checkout", 1, func(p *api.GPUProfile) { p.Status.Recommended.Memory = "much" })}, want: "False InvalidData: GPUProfile a: status.recommended.memory"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, func(p *api.InferencePlan, data map[string]string) {
					if !test.named {
						data["profiles.yaml"] = "models: []"
					}
					if test.absent {
						p.Spec.Profiles = api.DataReference{}
					}
				})
				for _, p := range test.profiles {
					if err := c.client.Create(t.Context(), p); err != nil {
						t.Fatal(err)
					}
				}
				got := c.pass(t, 2*time.Minute, usual)
				notes := strings.Join(got.Status.Notes, "\n")
				if !strings.HasPrefix(reason(got), test.want) || !strings.Contains(notes, test.note) || test.named && strings.Contains(notes, "GPUProfile") {
					t.Fatalf("%s\nnotes %s", reason(got), notes)
				}
				if !strings.HasPrefix(test.want, "True") {
					return
				}
				g := got.Status.Groups[0]
				if !test.named && (*g.Share.SM != 12 || g.Share.Memory != "1536Mi" || g.Batch > 8) {
					t.Errorf("%+v", g)
				}
				before := c.writes
				if c.pass(t, 10*time.Minute, usual); c.writes > before {
					t.Errorf("%d writes without a change", c.writes-before)
				}
			})
		})
	}
}

// TestMeasuredAnew: a profile that has found something else is planned with at once, and while it is measured the plan stays.
func TestMeasuredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, func(p *api.InferencePlan, _ map[string]string) { p.Spec.Profiles = api.DataReference{} })
		if err := c.client.Create(t.Context(), profileOf("a", "checkout", 1)); err != nil {
			t.Fatal(err)
		}
		first := c.pass(t, 2*time.Minute, usual)
		edit(t, c, "a", &api.GPUProfile{}, unfinished)
		if got := c.pass(t, time.Minute, usual); !strings.HasPrefix(reason(got), "False InvalidData") || names(got) != names(first) || len(got.Status.Groups) == 0 {
			t.Errorf("while it is measured: %s, %s, before %s", reason(got), names(got), names(first))
		}
		edit(t, c, "a", &api.GPUProfile{}, func(p *api.GPUProfile) { p.Status = profileOf("a", "checkout", 3).Status })
		got := c.pass(t, 10*time.Second, usual)
		if !strings.HasPrefix(reason(got), "True Planned") || number(got.Status.Cost.Planned) <= number(first.Status.Cost.Planned) {
			t.Errorf("%s, %s/h after %s/h, though it takes thrice the time", reason(got), got.Status.Cost.Planned, first.Status.Cost.Planned)
		}
	})
}
