package events

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// line writes an event as Dilu's simulator does.
func line(e Event) string {
	action, kind, memory := ended, "training", make([]string, e.Instance.GPUs)
	if e.Start {
		action = started
	}
	if e.Instance.LLM {
		kind = llm
	}
	for i := range memory {
		memory[i] = fmt.Sprint(int64(e.Instance.Memory / gib))
	}
	return fmt.Sprintf("{'Time': '%s', 'Action': '%s', 'Instance': {'service_name': %q, 'type': '%s', 'gpu_num': %d, "+
		"'sm_requests': %v, 'sm_limits': %v, 'memory': [%s]}}", e.At.Format(time.DateTime), action, e.Instance.Name, kind, e.Instance.GPUs,
		float64(e.Instance.Request)/1000, float64(e.Instance.Limit)/1000, strings.Join(memory, ", "))
}

func text(list []Event) string {
	var lines []string
	for _, e := range list {
		lines = append(lines, line(e))
	}
	return strings.Join(lines, "\n")
}

var noon = time.Date(2024, 6, 19, 12, 0, 0, 0, time.UTC)

// starts and ends are events so many seconds after noon.
func starts(second int, in Instance) Event {
	return Event{At: noon.Add(time.Duration(second) * time.Second), Start: true, Instance: in}
}

func ends(second int, in Instance) Event {
	e := starts(second, in)
	e.Start = false
	return e
}

// part returns an instance on one GPU with request and limit in percent.
func part(name string, request, limit share.PerMille, memory share.Bytes) Instance {
	return Instance{Name: name, GPUs: 1, Request: 10 * request, Limit: 10 * limit, Memory: memory * gib}
}

func TestParse(t *testing.T) {
	model := part("m", 40, 60, 28)
	model.LLM = true
	gang := part("it's", 55, 81, 30)
	gang.GPUs = 2
	want := []Event{starts(0, model), starts(1, gang), ends(1, gang), starts(9, gang)}
	got, err := Parse("\n" + text(want) + "\r\n\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Floats of the lists carry the noise of sums such as 0.39+0.2.
func TestParseRounds(t *testing.T) {
	noisy := strings.Replace(line(starts(0, part("a", 39, 59, 4))), "0.59", "0.5900000000000001", 1)
	list, err := Parse(noisy)
	if err != nil || list[0].Instance.Limit != 590 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	good := line(starts(5, part("a", 30, 50, 4)))
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct{ second, want string }{
		"no dict":           {"start", "invalid"},
		"cut off":           {good[:len(good)-1], "unexpected EOF"},
		"two dicts":         {good + good, "more than one dict"},
		"open string":       {change("'start'", "'start"), "does not end"},
		"escape":            {change("'start'", `'st\x61rt'`), "escape"},
		"Python constant":   {change("'start'", "None"), "invalid"},
		"unknown field":     {change("'gpu_num'", "'gpus'"), "gpus"},
		"time":              {change(noon.Format(time.DateOnly), "yesterday"), "yesterday"},
		"time goes back":    {change("12:00:05", "12:00:04"), "back"},
		"action":            {change("'start'", "'stop'"), "stop"},
		"no name":           {change(`"a"`, "''"), "service_name"},
		"type":              {change("'training'", "'game'"), "game"},
		"no GPU":            {change("'gpu_num': 1", "'gpu_num': 0"), "gpu_num 0"},
		"too many GPUs":     {change("'gpu_num': 1", "'gpu_num': 65"), "gpu_num 65"},
		"GPUs as text":      {change("'gpu_num': 1", "'gpu_num': '1'"), "gpu_num"},
		"part of a GPU":     {change("'gpu_num': 1", "'gpu_num': 1.5"), "gpu_num"},
		"no request":        {change("'sm_requests': 0.3, ", ""), "sm_requests"},
		"no limit":          {change("'sm_limits': 0.5, ", ""), "sm_limits"},
		"request of none":   {change("0.3", "0"), "sm_requests 0"},
		"limit too low":     {change("0.5", "0.2"), "sm_limits 0.2"},
		"limit above whole": {change("0.5", "1.1"), "sm_limits 1.1"},
		"not a number":      {change("0.5", "nan"), "invalid"},
		"endless":           {change("0.5", "1e999"), "1e999"},
		"no memory":         {change("[4]", "[]"), "0 values"},
		"more memory":       {change("[4]", "[4, 4]"), "2 values"},
		"negative memory":   {change("[4]", "[-4]"), "-4"},
		"huge memory":       {change("[4]", "[1000000000]"), "1000000000"},
		"runs already":      {good, "runs already"},
		"does not run":      {line(ends(6, part("b", 30, 50, 4))), "does not run"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(good + "\n" + c.second + "\n" + good)
			if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want line 2 and %q", err, c.want)
			}
		})
	}
	uneven := part("g", 30, 50, 4)
	uneven.GPUs = 2
	if _, err := Parse(strings.Replace(line(starts(0, uneven)), "[4, 4]", "[4, 5]", 1)); err == nil {
		t.Error("workers of different memory are taken")
	}
	if _, err := Parse("\n \n"); err == nil {
		t.Error("an empty list is taken")
	}
}

// What is accepted is in bounds, in order, and comes back the same when it is written again.
func FuzzParse(f *testing.F) {
	gang := part("gang", 55, 81, 30)
	gang.GPUs = 4
	seed := text([]Event{starts(0, part("a", 1, 100, 1)), starts(1, gang), ends(2, gang), ends(3, part("a", 1, 100, 1))})
	f.Add(seed)
	f.Add(strings.ReplaceAll(seed, `"`, "'"))
	f.Add(`{'Time': '`)
	f.Add("{}")
	f.Fuzz(func(t *testing.T, python string) {
		list, err := Parse(python)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") {
				t.Fatalf("error without a line: %v", err)
			}
			return
		}
		for i, e := range list {
			in := e.Instance
			if in.Request < 1 || in.Limit < in.Request || in.Limit > share.Whole || in.Memory < 1 || in.GPUs < 1 ||
				i > 0 && e.At.Before(list[i-1].At) {
				t.Fatalf("event %d: %+v", i, e)
			}
			if strings.ContainsAny(in.Name, "\"'\\") || fmt.Sprintf("%q", in.Name) != `"`+in.Name+`"` {
				return // line writes Go's quotes
			}
		}
		again, err := Parse(text(list))
		if err != nil || !reflect.DeepEqual(list, again) {
			t.Fatalf("%v\n%+v\n%+v", err, list, again)
		}
	})
}
