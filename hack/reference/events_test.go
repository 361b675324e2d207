package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recording returns a package that records a documented event, of which a part is replaced.
func recording(old, new string) string {
	return strings.ReplaceAll(`package p

// eventGone says that it has gone.
//
//	kind: event
//	object: pod
//	type: Warning
//	written by: scheduler
//	to do: wait
const eventGone = "Gone"

func f(r record.Recorder) { r.Eventf(pod, nil, v1.EventTypeWarning, eventGone, "Go", "%s", text) }
`, old, new)
}

// reasonsOf returns the events of a package, without what is required of the repository's own files.
func reasonsOf(t *testing.T, text string) ([]entry, error) {
	t.Helper()
	before := dynamicReasons
	dynamicReasons = map[string]string{}
	t.Cleanup(func() { dynamicReasons = before })
	return sourceOf(t, text).events()
}

func TestEvents(t *testing.T) {
	for name, text := range map[string]string{
		"new recorder": recording("", ""),
		"old recorder": recording("Eventf(pod, nil, ", "Event(pod, "),
		"agent":        recording("r.Eventf(pod, nil, v1.EventTypeWarning, eventGone", "r.Cluster.Warn(pod, eventGone"),
		"selector":     recording("eventGone, ", "api.eventGone, "),
		"a log":        recording("r.Eventf(pod, nil, v1.EventTypeWarning, eventGone", `r.Log.Warn(pod, "x"`),
		"map":          recording("func f", "var eventReasons = map[string]string{\"a\": eventGone}\n\nfunc f"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reasonsOf(t, text)
			want := []entry{{constant: "eventGone", name: "Gone", text: "`Gone` says that it has gone.", where: "vgpu/a.go", fields: map[string]string{
				"kind": "event", "object": "pod", "type": "Warning", "written by": "scheduler", "to do": "wait",
			}}}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			page, err := eventsText(got)
			if line := "| `Gone` | pod | Warning | It has gone. | wait |\n"; err != nil || !strings.Contains(page, line) {
				t.Errorf("%v: no line %q in %s", err, line, page)
			}
		})
	}
}

// TestEventsUndocumented: an event whose reason is not described is an error, never a line that the page lacks.
func TestEventsUndocumented(t *testing.T) {
	for name, text := range map[string]string{
		"a literal":        recording("eventGone, ", `"Lost", `),
		"an agent's":       recording("r.Eventf(pod, nil, v1.EventTypeWarning, eventGone", `r.Cluster.Notify(pod, "Lost"`),
		"another constant": recording("eventGone, ", "eventLost, "),
		"a variable":       recording("eventGone, ", "reasons[i], "),
		"no field":         recording("//\tto do: wait\n", ""),
		"another type":     recording("v1.EventTypeWarning", "v1.EventTypeNormal"),
		"in the map":       recording("func f", "var eventReasons = map[string]string{\"a\": eventGone, \"b\": eventLost}\n\nfunc f"),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := reasonsOf(t, text); err == nil {
				t.Errorf("%+v", got)
			}
		})
	}
	if got, err := eventsText([]entry{{name: "Gone", fields: map[string]string{"written by": "nobody"}}}); err == nil {
		t.Error(got)
	}
	if _, err := sourceOf(t, recording("", "")).events(); err == nil {
		t.Error("files that record no event are in the list of those that do")
	}
}
