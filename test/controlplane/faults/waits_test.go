package faults

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const pollInterval = 50 * time.Millisecond

// waitBound returns once the pods are bound to nodes.
func (l *lab) waitBound(names ...string) {
	l.t.Helper()
	l.waitPods("to be bound", func(p *v1.Pod) bool { return p.Spec.NodeName != "" }, names...)
}

// waitRefused returns once the scheduler has reported the pods unschedulable.
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

// waitCount returns once at least the given number of pods is bound.
func (l *lab) waitCount(bound int) {
	l.t.Helper()
	var now int
	err := l.board.wait(l.ctx, func(p pods) bool { now = p.bound(); return now >= bound })
	if err != nil {
		l.t.Fatalf("%d pods are bound, want %d: %v", now, bound, err)
	}
}

// waitSettled returns once exactly count pods exist and each is bound or reported unschedulable.
func (l *lab) waitSettled(count int) {
	l.t.Helper()
	err := l.board.wait(l.ctx, func(p pods) bool {
		return len(p) == count && p.bound()+len(p.where(refused)) == count
	})
	if err != nil {
		l.t.Fatalf("waiting for %d pods to be bound or refused: %v", count, err)
	}
}

// waitEvent returns once the object has a warning event with the reason, whose note contains the text.
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
		l.t.Errorf("no event %s with %q, but %q", reason, text, notes)
	}
}

func (l *lab) events(ctx context.Context, uid types.UID) []eventsv1.Event {
	of := metav1.ListOptions{FieldSelector: "regarding.uid=" + string(uid)}
	list, err := l.client.EventsV1().Events(metav1.NamespaceAll).List(ctx, of)
	if err != nil {
		return nil
	}
	return list.Items
}
