package scheduled_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/verdict"
)

// TestVerdicts prepares all failures side by side, each on a node of its own.
func TestVerdicts(t *testing.T) {
	r := newRig(t)
	asked := map[string]*v1.Pod{}
	names := slices.Sorted(maps.Keys(failures))
	for _, name := range names {
		f := failures[name]
		r.addNode(t, name, f.node)
		for i, w := range f.before {
			r.until(t, r.add(t, pod(fmt.Sprint(name, "-before-", i), name, w), false), bound)
		}
		for i := range f.strays {
			stray := pod(fmt.Sprint(name, "-stray-", i), name, wish{sm: 90, quota: 60, mem: 1024})
			stray.Spec.SchedulerName = "nobody"
			r.bind(t, r.add(t, stray, false), name)
		}
	}
	// Nodes and pods come to the scheduler on watches of their own: once a pod is on the last node, it knows all of them.
	r.addNode(t, "last", nil)
	r.until(t, r.add(t, pod("last", "last", large), false), bound)
	for _, name := range names {
		asked[name] = r.add(t, pod(name, name, failures[name].asks), failures[name].asks.bare)
	}
	for _, name := range names {
		asked[name] = r.until(t, asked[name], refused)
	}
	s, err := cluster.Read(r.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { r.compare(t, s, name, asked[name]) })
	}
}

// compare holds the verdict against what the scheduler said, and tries the first change that it proposes.
func (r *rig) compare(t *testing.T, s *cluster.Snapshot, name string, p *v1.Pod) {
	t.Helper()
	f := failures[name]
	pod, ok := s.Pod(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	if !ok {
		t.Fatal("the pod is not there")
	}
	report, said := verdict.Explain(s, pod), strings.ToLower(refusal(p))
	if f.reason == "" {
		if report.Reason != verdict.BadRequest || !strings.Contains(said, f.scheduler) || !strings.Contains(report.Summary, f.scheduler) {
			t.Errorf("verdict %q, scheduler %q", report.Summary, said)
		}
		return
	}
	at := slices.IndexFunc(report.Nodes, func(n verdict.Node) bool { return n.Name == name })
	reason := report.Nodes[at].Obstacles[0].Reason
	want := f.scheduler
	if want == "" {
		want = reason
	}
	if reason != f.reason || !strings.Contains(said, strings.ToLower(want)) {
		t.Errorf("verdict %q, want %q; the scheduler said %q", reason, f.reason, said)
	}
	if f.solved != (len(report.Changes) > 0) {
		t.Fatalf("changes %+v", report.Changes)
	}
	if f.solved {
		r.until(t, r.add(t, edited(t, name+"-solved", name, f.asks, report.Changes[0]), false), bound)
	}
}
