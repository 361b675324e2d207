package faults

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/internal/audit"
	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const (
	testTimeout  = 90 * time.Second
	pollInterval = 50 * time.Millisecond
)

// lab is the cluster as one test uses it.
type lab struct {
	t      *testing.T
	ctx    context.Context // ends with the test
	client kubernetes.Interface
	board  *board
}

// newLab gives an empty cluster. No scheduler is started.
func newLab(t *testing.T) *lab {
	t.Helper()
	if err := startPlane(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	l := &lab{t: t, ctx: ctx, client: common.client, board: common.board}
	l.clean()
	return l
}

// clean removes what an earlier test left.
func (l *lab) clean() {
	l.t.Helper()
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	for _, namespace := range []string{metav1.NamespaceDefault} {
		l.must(l.client.CoreV1().Pods(namespace).DeleteCollection(l.ctx, at, metav1.ListOptions{}))
	}
	l.must(l.client.CoreV1().Nodes().DeleteCollection(l.ctx, at, metav1.ListOptions{}))
	l.must(l.board.wait(l.ctx, func(p pods) bool { return len(p) == 0 }))
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) addNodes(nodes ...*v1.Node) {
	l.t.Helper()
	l.must(cluster.CreateNodes(l.ctx, l.client, nodes, func() {}))
}

func (l *lab) addPods(pods ...*v1.Pod) {
	l.t.Helper()
	l.must(cluster.CreatePods(l.ctx, l.client, pods))
}

// deletePod deletes at once, as a kubelet does when the containers have ended.
func (l *lab) deletePod(name string) {
	l.t.Helper()
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	l.must(l.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(l.ctx, name, at))
}

// setInventory replaces a node's inventory by any text.
func (l *lab) setInventory(node, text string) {
	l.t.Helper()
	patch := annotationPatch(l.t, kube.AnnotationInventory, text)
	_, err := l.client.CoreV1().Nodes().Patch(l.ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

func (l *lab) annotatePod(pod, name, value string) {
	l.t.Helper()
	patch := annotationPatch(l.t, name, value)
	_, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(l.ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

func annotationPatch(t *testing.T, name, value string) []byte {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// pod reads a pod of the default namespace.
func (l *lab) pod(name string) *v1.Pod {
	l.t.Helper()
	pod, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Get(l.ctx, name, metav1.GetOptions{})
	l.must(err)
	return pod
}

// waitBound returns when the pods have a node.
func (l *lab) waitBound(names ...string) {
	l.t.Helper()
	l.waitPods("to be bound", func(p *v1.Pod) bool { return p.Spec.NodeName != "" }, names...)
}

// waitRefused returns when the scheduler has reported the pods unschedulable.
func (l *lab) waitRefused(names ...string) {
	l.t.Helper()
	l.waitPods("to be refused", refused, names...)
}

func (l *lab) waitPods(what string, holds func(*v1.Pod) bool, names ...string) {
	l.t.Helper()
	var missing string
	err := l.board.wait(l.ctx, func(p pods) bool {
		at := slices.IndexFunc(names, func(name string) bool {
			pod := p["default/"+name]
			return pod == nil || !holds(pod)
		})
		if at >= 0 {
			missing = names[at]
		}
		return at < 0
	})
	if err != nil {
		l.t.Fatalf("waiting for pod %s %s: %v", missing, what, err)
	}
}

// waitCount returns when at least that many pods are bound.
func (l *lab) waitCount(bound int) {
	l.t.Helper()
	var now int
	err := l.board.wait(l.ctx, func(p pods) bool { now = p.bound(); return now >= bound })
	if err != nil {
		l.t.Fatalf("%d pods are bound, want %d: %v", now, bound, err)
	}
}

// waitSettled returns when every pod is bound or refused, and as many as given exist.
func (l *lab) waitSettled(count int) {
	l.t.Helper()
	err := l.board.wait(l.ctx, func(p pods) bool {
		return len(p) == count && p.bound()+len(p.where(refused)) == count
	})
	if err != nil {
		l.t.Fatalf("waiting for %d pods to be bound or refused: %v", count, err)
	}
}

// waitEvent returns when the object has a warning with the reason whose note has the text.
func (l *lab) waitEvent(uid types.UID, reason, text string) {
	l.t.Helper()
	var notes []string
	err := wait.PollUntilContextCancel(l.ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		notes = nil
		for _, e := range l.events(ctx, uid) {
			if e.Type == v1.EventTypeWarning && e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		return slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, text) }), nil
	})
	if err != nil {
		l.t.Fatalf("no event %s with %q, but %q", reason, text, notes)
	}
}

func (l *lab) events(ctx context.Context, uid types.UID) []eventsv1.Event {
	list, err := l.client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "regarding.uid=" + string(uid)})
	if err != nil {
		return nil
	}
	return list.Items
}

// audit derives what all slices hold from the API server's objects.
func (l *lab) audit() (audit.Report, []v1.Pod) {
	l.t.Helper()
	nodes, pods, err := cluster.Objects(l.ctx, l.client)
	l.must(err)
	return audit.Check(nodes, pods, audit.Options{}), pods
}

// finish ends a test: no rule is broken, and exactly the pods named wait.
func (l *lab) finish(waiting ...string) audit.Report {
	l.t.Helper()
	report, all := l.audit()
	l.reportViolations(report)
	var got []string
	for i := range all {
		if all[i].Spec.NodeName == "" {
			got = append(got, all[i].Name)
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

// wantNode checks where a bound pod is.
func (l *lab) wantNode(pod, node string) {
	l.t.Helper()
	if got := l.pod(pod).Spec.NodeName; got != node {
		l.t.Errorf("pod %s is on %q, want %q", pod, got, node)
	}
}

func names(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
