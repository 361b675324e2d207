package sharing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
)

// randomCluster has nodes of one to four GPUs with random pods that fit.
func randomCluster(t *testing.T, r *rand.Rand, nodes int) []fwk.NodeInfo {
	var out []fwk.NodeInfo
	p := newPlugin(t, newHandle(), 0)
	for n := range nodes {
		name := fmt.Sprintf("n%02d", r.IntN(1000)*100+n)
		info := newNodeInfo(gpuNode(t, name, 1+r.IntN(4)))
		h := newHandle(info)
		p.handle = h
		for range r.IntN(6) {
			pod := gpuPod(fmt.Sprintf("%s-%d", name, len(info.pods)), int64(10*(1+r.IntN(10))), int64(10*(1+r.IntN(10))))
			state, _ := prefilter(t, p, pod)
			if p.Filter(t.Context(), state, pod, info).IsSuccess() {
				reserve(t, p, pod, name)
				bind(t, p.ledger, info, pod)
			}
		}
		out = append(out, info)
	}
	return out
}

// winner schedules the pod as the scheduler does, without its other plugins.
func winner(t *testing.T, p *Plugin, pod *v1.Pod, refused map[string]bool) string {
	t.Helper()
	state, result := prefilter(t, p, pod)
	var scores fwk.NodeScoreList
	for _, info := range p.handle.(*fakeHandle).snapshot {
		name := info.Node().Name
		if refused[name] || !result.AllNodes() && !result.NodeNames.Has(name) || !p.Filter(t.Context(), state, pod, info).IsSuccess() {
			continue
		}
		score, status := p.Score(t.Context(), state, pod, info)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		scores = append(scores, fwk.NodeScore{Name: name, Score: score})
	}
	p.NormalizeScore(t.Context(), state, pod, scores)
	best := fwk.NodeScore{Score: -1}
	for _, s := range scores {
		if s.Score > best.Score {
			best = s
		}
	}
	return best.Name
}

// Whatever other plugins refuse: if a candidate survives, it is the node that would have won among all.
func TestNarrowingKeepsTheWinner(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes := randomCluster(t, r, 24)
		narrow, wide := newPlugin(t, newHandle(nodes...), 5), newPlugin(t, newHandle(nodes...), 0)
		decided := 0
		for i := range 40 {
			pod := gpuPod(fmt.Sprintf("new-%d", i), int64(10*(1+r.IntN(10))), int64(10*(1+r.IntN(10))))
			refused := map[string]bool{}
			for _, n := range nodes {
				refused[n.Node().Name] = r.IntN(3) == 0
			}
			got, want := winner(t, narrow, pod, refused), winner(t, wide, pod, refused)
			if got != "" && got != want {
				t.Fatalf("seed %d, pod %d: %s wins among the candidates, %s among all", seed, i, got, want)
			}
			if got != "" {
				decided++
			}
		}
		if decided < 20 {
			t.Errorf("seed %d: candidates decided only %d of 40 pods", seed, decided)
		}
	}
}

func TestNarrowOnlyWhereItLeavesNodesOut(t *testing.T) {
	nodes := []fwk.NodeInfo{newNodeInfo(gpuNode(t, "n1", 1)), newNodeInfo(gpuNode(t, "n2", 1)), newNodeInfo(gpuNode(t, "n3", 0))}
	for name, tt := range map[string]struct {
		candidates, want int // nodes named; 0 is all
		pod              *v1.Pod
	}{
		"switched off":         {0, 0, gpuPod("a", 50, 50)},
		"no more than allowed": {3, 0, gpuPod("a", 50, 50)},
		"best ones":            {1, 1, gpuPod("a", 50, 50)},
		"those that fit":       {2, 2, gpuPod("a", 50, 50)},
		"none fits":            {2, 0, gpuPod("a", 50, 50, func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"no": "where"} })},
		"no GPU asked for":     {1, 1, cpuPod("a")},
	} {
		t.Run(name, func(t *testing.T) {
			_, result := prefilter(t, newPlugin(t, newHandle(nodes...), tt.candidates), tt.pod)
			if result.AllNodes() != (tt.want == 0) || !result.AllNodes() && result.NodeNames.Len() != tt.want {
				t.Errorf("PreFilter names %v", result)
			}
		})
	}
}

func TestPostFilterSendsThePodRoundOnce(t *testing.T) {
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)), newNodeInfo(gpuNode(t, "n2", 1)))
	p := newPlugin(t, h, 1)
	pod := gpuPod("a", 50, 50)
	h.knows(pod)
	state, result := prefilter(t, p, pod)
	if result.AllNodes() {
		t.Fatal("no candidates were named")
	}
	before := counted(t, "gshare_scheduler_cycles_total", wideRetry)
	_, status := p.PostFilter(t.Context(), state, pod, nil)
	if n := counted(t, "gshare_scheduler_cycles_total", wideRetry) - before; n != 1 {
		t.Errorf("%v cycles are counted, want 1", n)
	}
	if status.Code() != fwk.UnschedulableAndUnresolvable || len(h.activated) != 1 || h.activated[0] != "team/a" {
		t.Fatalf("status %v, activated %v; want the end of PostFilter and the pod", status, h.activated)
	}
	state, result = prefilter(t, p, pod)
	if !result.AllNodes() {
		t.Fatalf("second cycle: %v, want all nodes", result)
	}
	if _, status = p.PostFilter(t.Context(), state, pod, nil); status.Code() != fwk.Unschedulable || len(h.activated) != 1 {
		t.Errorf("second cycle: status %v, activated %v; want preemption to follow", status, h.activated)
	}
	reserve(t, p, pod, "n1")
	if _, result = prefilter(t, p, pod); result.AllNodes() {
		t.Error("the pod had a node and is still tried everywhere")
	}
}

func TestPostFilterWithoutPreFilter(t *testing.T) {
	h := newHandle()
	if _, status := newPlugin(t, h, 1).PostFilter(t.Context(), newState(), gpuPod("a", 50, 50), nil); status.Code() != fwk.Unschedulable || len(h.activated) != 0 {
		t.Errorf("status %v, activated %v", status, h.activated)
	}
}

// counted returns the sum of a counter, as the scheduler exposes it, over the series that have a label of the given value.
func counted(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetValue() == label {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
