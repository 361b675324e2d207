package faults

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// audit computes what all slices hold from the API server's objects.
func (l *lab) audit() (audit.Report, []v1.Pod) {
	l.t.Helper()
	nodes, pods, err := bulk.ListObjects(l.ctx, l.client)
	l.must(err)
	return audit.Check(nodes, pods, audit.Options{}), pods
}

// finish ends a test: it checks that no rule is violated and that exactly the named pods are pending, for none of which
// there is room.
func (l *lab) finish(waiting ...string) audit.Report {
	l.t.Helper()
	report, all := l.audit()
	l.reportViolations(report)
	var got []string
	for i := range all {
		if all[i].Spec.NodeName != "" {
			continue
		}
		got = append(got, all[i].Name)
		if room := report.Admissible(all[i]); len(room) > 0 {
			l.t.Errorf("pod %s waits, but %v would admit it", all[i].Name, room)
		}
	}
	slices.Sort(got)
	slices.Sort(waiting)
	if !slices.Equal(got, waiting) {
		l.t.Errorf("pods %v wait, want %v", got, waiting)
	}
	return report
}

func (l *lab) reportViolations(report audit.Report) {
	l.t.Helper()
	for _, v := range report.Violations {
		l.t.Errorf("violation %s on %s %s, pod %s: %s", v.Kind, v.Node, v.Slice, v.Pod, v.Text)
	}
}

// wantNode checks to which node a pod is bound.
func (l *lab) wantNode(pod, node string) {
	l.t.Helper()
	if got := l.pod(pod).Spec.NodeName; got != node {
		l.t.Errorf("pod %s is on %q, want %q", pod, got, node)
	}
}

// wantFull checks that every GPU is fully allocated.
func (l *lab) wantFull() {
	l.t.Helper()
	if report := l.finish(); report.Requested != share.Area(report.GPUs)*share.WholeArea {
		l.t.Errorf("%d of %d GPUs' worth are in use", report.Requested/share.WholeArea, report.GPUs)
	}
}

// wantSound checks, while the test goes on, that no rule is violated, and returns the number of bound pods.
func (l *lab) wantSound() (bound int) {
	l.t.Helper()
	report, all := l.audit()
	l.reportViolations(report)
	for i := range all {
		if all[i].Spec.NodeName != "" {
			bound++
		}
	}
	return bound
}
