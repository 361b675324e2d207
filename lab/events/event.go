// Package events replays lists of instances that start and stop on a cluster of equal GPUs, and counts the GPUs that each policy needs:
// Dilu's packing, the policies that Dilu is compared with, and gshare's.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Event is the start or the end of one instance at a point in time.
type Event struct {
	At       time.Time
	Start    bool // otherwise the instance ends
	Instance Instance
}

// Instance is one running copy of a function: a gang of workers with equal shares on different GPUs.
type Instance struct {
	Name    string // unique among the running instances
	LLM     bool   // its model may be divided between GPUs
	GPUs    int
	Request share.PerMille // of each GPU's SMs
	Limit   share.PerMille
	Memory  share.Bytes // on each GPU
}

// Parse parses a list of events in the format of Dilu's simulator: one Python dict per line, with SMs as fractions of a GPU and memory
// in GiB. Times may not decrease; an instance starts once and ends later. Errors name the line.
func Parse(text string) ([]Event, error) {
	var list []Event
	running := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		e, err := parseLine(line)
		if err == nil {
			err = checkOrder(list, running, e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		running[e.Instance.Name] = e.Start
		list = append(list, e)
	}
	if len(list) == 0 {
		return nil, errors.New("line 1: no events")
	}
	return list, nil
}

// checkOrder returns an error if the event contradicts those before it: an earlier time, a second start, or an end without a start.
func checkOrder(before []Event, running map[string]bool, e Event) error {
	switch name := e.Instance.Name; {
	case len(before) > 0 && e.At.Before(before[len(before)-1].At):
		return fmt.Errorf("the time goes back to %s", e.At.Format(time.DateTime))
	case e.Start && running[name]:
		return fmt.Errorf("%.64q starts but runs already", name)
	case !e.Start && !running[name]:
		return fmt.Errorf("%.64q ends but does not run", name)
	}
	return nil
}

// record is one line of a list of events, as decoded from JSON. A nil pointer is a missing field.
type record struct {
	Time     string
	Action   string
	Instance struct {
		Name    string   `json:"service_name"`
		Type    string   `json:"type"`
		GPUs    int      `json:"gpu_num"`
		Request *float64 `json:"sm_requests"`
		Limit   *float64 `json:"sm_limits"`
		Memory  []int64  `json:"memory"`
	}
}

func parseLine(line string) (Event, error) {
	text, err := pythonToJSON(line)
	if err != nil {
		return Event{}, err
	}
	var r record
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Event{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Event{}, errors.New("more than one dict")
	}
	return r.event()
}

// pythonToJSON converts a Python literal of dicts, lists, numbers and strings to JSON, which uses other quotes. It does not support
// Python's escapes, which the lists do not contain.
func pythonToJSON(python string) (string, error) {
	var out strings.Builder
	for rest := python; ; {
		at := strings.IndexAny(rest, `'"`)
		if at < 0 {
			out.WriteString(rest)
			return out.String(), nil
		}
		length := strings.IndexByte(rest[at+1:], rest[at])
		if length < 0 {
			return "", errors.New("a string does not end")
		}
		inside := rest[at+1 : at+1+length]
		if strings.Contains(inside, `\`) {
			return "", errors.New("a string has an escape")
		}
		quoted, err := json.Marshal(inside)
		if err != nil {
			return "", err
		}
		out.WriteString(rest[:at])
		out.Write(quoted)
		rest = rest[at+length+2:]
	}
}

// The bounds are generous: they keep sums far from overflow.
const (
	maxGiB  = 1 << 16
	gib     = 1 << 10 * share.MiB
	started = "start"
	ended   = "delete"
)

var kinds = []string{"training", "inference", llm}

const llm = "llm-inference"

func (r *record) event() (Event, error) {
	at, err := time.Parse(time.DateTime, r.Time)
	if err != nil {
		return Event{}, fmt.Errorf("time %.64q is not like %s", r.Time, time.DateTime)
	}
	i := &r.Instance
	switch {
	case r.Action != started && r.Action != ended:
		return Event{}, fmt.Errorf("action %.64q is neither %s nor %s", r.Action, started, ended)
	case i.Name == "":
		return Event{}, errors.New("the instance has no service_name")
	case !slices.Contains(kinds, i.Type):
		return Event{}, fmt.Errorf("type %.64q is none of %s", i.Type, strings.Join(kinds, ", "))
	case i.GPUs < 1 || i.GPUs > share.MaxVGPUs:
		return Event{}, fmt.Errorf("gpu_num %d is not between 1 and %d", i.GPUs, share.MaxVGPUs)
	}
	request, limit, err := r.shares()
	if err != nil {
		return Event{}, err
	}
	memory, err := r.memory()
	return Event{At: at, Start: r.Action == started, Instance: Instance{
		Name: i.Name, LLM: i.Type == llm, GPUs: i.GPUs, Request: request, Limit: limit, Memory: memory,
	}}, err
}

func (r *record) shares() (request, limit share.PerMille, err error) {
	i := &r.Instance
	if i.Request == nil || i.Limit == nil {
		return 0, 0, errors.New("sm_requests or sm_limits is missing")
	}
	if *i.Request < 0.001 || *i.Limit < *i.Request || *i.Limit > 1 {
		return 0, 0, fmt.Errorf("sm_requests %g and sm_limits %g are not in order between 0.001 and 1", *i.Request, *i.Limit)
	}
	return perMille(*i.Request), perMille(*i.Limit), nil
}

func perMille(part float64) share.PerMille {
	return share.PerMille(math.Round(part * float64(share.Whole)))
}

func (r *record) memory() (share.Bytes, error) {
	m := r.Instance.Memory
	if len(m) != r.Instance.GPUs {
		return 0, fmt.Errorf("memory has %d values for %d GPUs", len(m), r.Instance.GPUs)
	}
	for _, v := range m {
		if v != m[0] || v < 1 || v > maxGiB {
			return 0, fmt.Errorf("memory: %d GiB; one amount between 1 and %d for all GPUs is needed", v, maxGiB)
		}
	}
	return share.Bytes(m[0]) * gib, nil
}
