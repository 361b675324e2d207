package sharing

import (
	"fmt"
	"math"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestNormalizeScoreGivesDistinctPlaces(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	scores := fwk.NodeScoreList{
		{Name: "d", Score: -7}, {Name: "b", Score: math.MinInt64}, {Name: "c", Score: -7}, {Name: "a", Score: math.MaxInt64},
	}
	if status := p.ScoreExtensions().NormalizeScore(t.Context(), nil, nil, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := fwk.NodeScoreList{{Name: "d", Score: 98}, {Name: "b", Score: 97}, {Name: "c", Score: 99}, {Name: "a", Score: 100}}
	if !slices.Equal(scores, want) {
		t.Errorf("scores %v, want %v: by score, equal ones by name", scores, want)
	}
}

func TestNormalizeScoreOfManyNodesStaysInRange(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	var scores fwk.NodeScoreList
	for i := range 300 {
		scores = append(scores, fwk.NodeScore{Name: fmt.Sprint(i), Score: int64(i)})
	}
	p.NormalizeScore(t.Context(), nil, nil, scores)
	if scores[299].Score != fwk.MaxScore || scores[298].Score != 99 || scores[0].Score != fwk.MinScore {
		t.Errorf("best %d, next %d, worst %d", scores[299].Score, scores[298].Score, scores[0].Score)
	}
}

func TestScorePrefersTheTighterNode(t *testing.T) {
	free, tight := newNodeInfo(gpuNode(t, "free", 1)), newNodeInfo(gpuNode(t, "tight", 1), placed(t, gpuPod("a", 100, 50), "tight", "tight-0"))
	full := newNodeInfo(gpuNode(t, "full", 1), placed(t, gpuPod("b", 100, 100), "full", "full-0"))
	p := newPlugin(t, newHandle(free, tight, full), 0)
	pod := gpuPod("new", 100, 40)
	state, _ := prefilter(t, p, pod)
	score := func(n *fakeNode) int64 {
		got, status := p.Score(t.Context(), state, pod, n)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		return got
	}
	if score(tight) <= score(free) || score(full) != math.MinInt64 {
		t.Errorf("tight %d, free %d, full %d", score(tight), score(free), score(full))
	}
}

func TestPreferencesLeaveTheChoiceToOthers(t *testing.T) {
	spread := func(what v1.UnsatisfiableConstraintAction) edit {
		return func(pod *v1.Pod) {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{WhenUnsatisfiable: what}}
		}
	}
	affinity := func(a v1.Affinity) edit { return func(pod *v1.Pod) { pod.Spec.Affinity = &a } }
	soft := []v1.WeightedPodAffinityTerm{{Weight: 1}}
	hard := []v1.PodAffinityTerm{{}}
	anyNode := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "no", Operator: v1.NodeSelectorOpDoesNotExist}},
	}}}
	tests := map[string]struct {
		edit edit
		want bool
	}{
		"none":               {func(*v1.Pod) {}, false},
		"empty affinity":     {affinity(v1.Affinity{}), false},
		"hard spread":        {spread(v1.DoNotSchedule), false},
		"soft spread":        {spread(v1.ScheduleAnyway), true},
		"soft node affinity": {affinity(v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1}}}}), true},
		"hard node affinity": {affinity(v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: anyNode}}), false},
		"soft pod affinity":  {affinity(v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: soft}}), true},
		"hard pod affinity":  {affinity(v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: hard}}), false},
		"soft anti-affinity": {affinity(v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: soft}}), true},
		"hard anti-affinity": {affinity(v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: hard}}), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, newHandle(newNodeInfo(gpuNode(t, "n1", 1)), newNodeInfo(gpuNode(t, "n2", 1))), 1)
			pod := gpuPod("a", 50, 50, tt.edit)
			if hasPreferences(pod) != tt.want {
				t.Fatalf("hasPreferences = %v", !tt.want)
			}
			state, result := prefilter(t, p, pod)
			if got := p.PreScore(t.Context(), state, pod, nil).IsSkip(); got != tt.want {
				t.Errorf("PreScore skips: %v", got)
			}
			if result.AllNodes() != tt.want {
				t.Errorf("PreFilter names %v", result)
			}
		})
	}
}
