package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// dynamicReasons maps files in which a call records an event with a reason that is not a constant there to why the event is documented
// nevertheless.
var dynamicReasons = map[string]string{
	"serving/controller/decisions.go": "one of two constants",
	"serving/profiles/profiles.go":    "the cases of the switch around it",
	"node/agent/cluster.go":           "the recorder itself",
	"node/agent/granter.go":           "a grant.Reason: all of them have to be documented",
	"node/agent/offenders.go":         "a value of eventReasons: all of them have to be documented",
	"node/agent/prestart.go":          "a grant.Reason: all of them have to be documented",
}

// reasonArguments maps the names of functions that record an event to the index of the argument with the reason.
var reasonArguments = map[string]int{"Eventf": 3, "Event": 2, "Warn": 1, "Notify": 1}

var eventFields = []string{"object", "type", "written by", "to do"}

// recordedEvent is a call that records an event.
type recordedEvent struct {
	where, kind string
	reason      string // name of the constant; empty if the reason is not one
	text        string // the reason if it is a literal
}

// recordedBy returns the event that a call records, or false if it records none.
func recordedBy(call *ast.CallExpr, where string) (e recordedEvent, ok bool) {
	at, known := reasonArguments[called(call)]
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	if !known || !isMethod || len(call.Args) <= at {
		return e, false
	}
	e = recordedEvent{where: where}
	switch name := called(call); name {
	case "Warn", "Notify":
		if typeName(method.X) != "Cluster" { // not the recorder but a logger
			return e, false
		}
		e.kind = map[string]string{"Warn": "Warning", "Notify": "Normal"}[name]
	default:
		e.kind = strings.TrimPrefix(typeName(call.Args[at-1]), "EventType")
	}
	e.text, _ = literal(call.Args[at])
	e.reason = typeName(call.Args[at])
	return e, true
}

// events returns the documented events, sorted by their objects. It returns an error if an event is recorded whose reason lacks the required
// comment.
func (s sourceText) events() (events []entry, err error) {
	byConstant := map[string][]entry{}
	for _, c := range s.constants {
		if c.field("kind") != "event" {
			if c.typed == "Reason" && path.Dir(c.where) == "node/grant" {
				err = errors.Join(err, fmt.Errorf("%s: the comment of %s does not describe it as an event", c.where, c.constant))
			}
			continue
		}
		err = errors.Join(err, c.require(eventFields))
		events = append(events, c)
		byConstant[c.constant] = append(byConstant[c.constant], c)
	}
	dynamic := maps.Clone(dynamicReasons)
	for _, r := range s.recorded {
		of := byConstant[r.reason]
		_, isDynamic := dynamicReasons[r.where]
		switch {
		case len(of) > 0:
			if !slices.ContainsFunc(of, func(e entry) bool { return e.field("type") == r.kind }) {
				err = errors.Join(err, fmt.Errorf("%s: %s is recorded as %s, and its comment says something else", r.where, r.reason, r.kind))
			}
		case isDynamic && r.text == "":
			delete(dynamic, r.where)
		default:
			err = errors.Join(err, fmt.Errorf("%s: the reason %s%q of an event is no constant with a comment that describes it", r.where, r.reason, r.text))
		}
	}
	for _, name := range s.eventReasons {
		if len(byConstant[name]) == 0 {
			err = errors.Join(err, fmt.Errorf("%s in eventReasons is no constant with a comment that describes it", name))
		}
	}
	for where := range dynamic {
		if len(s.recorded) > 0 {
			err = errors.Join(err, fmt.Errorf("%s records no event whose reason is no constant", where))
		}
	}
	slices.SortStableFunc(events, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.field("object"), b.field("object")))
	})
	return events, err
}

type eventWriter struct{ program, title, text string }

// eventWriters are the programs that record events, in the order of the page, with the command that shows their events.
var eventWriters = []eventWriter{
	{"node agent", "The node agent (gshare-node)", "On pods: `kubectl describe pod POD`. A container whose start is refused is tried again by the kubelet."},
	{"scheduler", "gshare-scheduler", "On nodes: `kubectl describe node NODE`. On pods, gshare-scheduler records Kubernetes' own `Scheduled` and `FailedScheduling`; the text of the " +
		"latter counts the nodes for each reason, and `kubectl gshare explain POD` says what to change."},
	{"gshare-controller", "gshare-controller", "On the objects that it serves: `kubectl describe gpufunction NAME`, or `kubectl gshare function NAME`."},
}

// eventsPage returns docs/events.md.
func eventsPage(root string) (string, error) {
	source, err := readSource(root)
	if err != nil {
		return "", err
	}
	events, err := source.events()
	if err != nil {
		return "", err
	}
	return eventsText(events)
}

func eventsText(events []entry) (string, error) {
	var page strings.Builder
	page.WriteString("# Events\n\nWritten from the source by `make reference`. `kubectl get events -A --field-selector reason=GPUFault` lists all of one reason. " +
		"The message of an event has the particulars: which process, which GPU, how much is missing.\n")
	for _, w := range eventWriters {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| Reason | On | Type | Meaning | What to do |\n|---|---|---|---|---|\n", w.title, w.text)
		for _, e := range events {
			if e.field("written by") == w.program {
				page.WriteString(row("`"+e.name+"`", e.field("object"), e.field("type"), withoutSubject(e), e.field("to do")))
			}
		}
	}
	for _, e := range events {
		if !slices.ContainsFunc(eventWriters, func(w eventWriter) bool { return w.program == e.field("written by") }) {
			return "", fmt.Errorf("%s: %q records %s and is no program of the page", e.where, e.field("written by"), e.constant)
		}
	}
	return page.String(), nil
}
