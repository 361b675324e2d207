package residency

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	ms = time.Millisecond
	gb = share.Bytes(1 << 30)
)

// kinds take half the time of the one before.
var kinds = map[string]pipeline.Kind{
	"1g.10gb": {Name: "1g.10gb", Compute: 1, Memory: 10 * gb},
	"2g.20gb": {Name: "2g.20gb", Compute: 2, Memory: 20 * gb},
	"4g.40gb": {Name: "4g.40gb", Compute: 4, Memory: 40 * gb},
}

// function runs in time on 1g, in half of it on 2g, and so on. Its loads take 100 ms from host memory and 1 s from storage.
func testFunction(name, tenant string, memoryGB int, on1g time.Duration) Function {
	f := Function{Name: name, Tenant: tenant, Memory: share.Bytes(memoryGB) * gb, Times: map[string]time.Duration{}, LoadWarm: 100 * ms, LoadCold: time.Second}
	for name, k := range kinds {
		f.Times[name] = on1g / time.Duration(k.Compute)
	}
	return f
}

// TestTranscripts plays the scripts of testdata on a node. Their lines are
//
//	node [host GB] [refuse]                 a new node
//	function NAME TENANT GB TIME            TIME on 1g
//	TIME add|remove|lose SLICE [KIND]
//	TIME request ID FUNCTION DEADLINE       then everything is dispatched
//	TIME finish SLICE                       then everything is dispatched
//	TIME leave|join|where FUNCTION
//	TIME run
//
// Until the time of a line, what runs finishes when it is expected to, and every second is reviewed. Each line of the answer begins with
// its time.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		p := player{said: map[string]bool{}}
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			p.out.Reset()
			for line := range strings.Lines(d.Input) {
				if err := p.play(strings.Fields(line)); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			}
			return p.out.String()
		})
	})
}

// player drives one node.
type player struct {
	node *Node
	now  time.Duration
	said map[string]bool // advice that still holds
	out  strings.Builder
}

func (p *player) say(format string, args ...any) {
	fmt.Fprintf(&p.out, "%v: %s\n", p.now, fmt.Sprintf(format, args...))
}

func (p *player) play(words []string) error {
	switch words[0] {
	case "node":
		return p.open(words[1:])
	case "function":
		size, err := strconv.Atoi(words[3])
		if err != nil {
			return err
		}
		on1g, err := time.ParseDuration(words[4])
		if err != nil {
			return err
		}
		return p.node.Register(testFunction(words[1], words[2], size, on1g))
	}
	now, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	if p.run(now); words[1] == "run" {
		return nil
	}
	return p.event(now, words[1], words[2:])
}

func (p *player) open(words []string) (err error) {
	var policy Policy
	for len(words) > 0 {
		switch words[0] {
		case "host":
			size, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			policy.Host, words = share.Bytes(size)*gb, words[2:]
		case "refuse":
			policy.Refuse, words = true, words[1:]
		default:
			return fmt.Errorf("what is %s?", words[0])
		}
	}
	p.node, err = New(policy)
	p.now, p.said = 0, map[string]bool{}
	return err
}

func (p *player) event(now time.Duration, what string, words []string) error {
	var err error
	switch what {
	case "add":
		err = p.node.AddSlice(now, pipeline.Slice{ID: words[0], Kind: kinds[words[1]]})
	case "remove":
		err = p.node.RemoveSlice(now, words[0])
	case "lose":
		if r, ran := p.node.LoseSlice(now, words[0]); ran {
			p.say("lost with request %d of %s", r.ID, r.Function)
		}
	case "request":
		id, _ := strconv.ParseUint(words[0], 10, 64)
		deadline, wrong := time.ParseDuration(words[2])
		if wrong != nil {
			return wrong
		}
		err = p.node.Enqueue(now, Request{id, words[1], deadline})
	case "finish":
		err = p.node.Finish(now, words[0])
	case "leave":
		for _, r := range p.node.RemovePromoted(now, words[0]) {
			p.say("request %d is returned", r.ID)
		}
	case "join":
		p.node.AddDemoted(now, words[0])
	case "where":
		p.say("%s is %v, %d wait", words[0], p.node.Residency(words[0]), p.node.Waiting(words[0]))
		return nil
	default:
		return fmt.Errorf("what is %s?", what)
	}
	if err != nil {
		p.say("%v", err)
	}
	p.dispatch(now)
	return nil
}

func (p *player) dispatch(now time.Duration) {
	d := p.node.Dispatch(now)
	for _, r := range d.Refused {
		p.say("refuse %d of %s", r.ID, r.Function)
	}
	for _, s := range d.Starts {
		more := ""
		if len(s.Evicted) > 0 {
			more += ", evict " + strings.Join(s.Evicted, " ")
		}
		if s.Scrub {
			more += ", scrub"
		}
		p.say("%d of %s on %s from %s, %v + %v%s", s.Request.ID, s.Request.Function, s.Slice, s.Source, s.Load, s.Execution, more)
	}
}

// run simulates until a time: it finishes requests at their expected end and calls Review every second. It prints new advice only.
func (p *player) run(until time.Duration) {
	for {
		next := p.now.Truncate(time.Second) + time.Second
		ends := slices.DeleteFunc(slices.Clone(p.node.slices), func(s *slice) bool { return s.running == nil })
		var first *slice
		if len(ends) > 0 {
			first = slices.MinFunc(ends, func(a, b *slice) int { return int(a.until - b.until) })
		}
		switch {
		case first != nil && first.until <= min(next, until):
			p.now = first.until
			p.finish(first)
		case next <= until:
			p.now = next
			p.review()
		default:
			p.now = until
			return
		}
	}
}

func (p *player) finish(s *slice) {
	if late := p.now - s.request.Deadline; late > 0 {
		p.say("%d is late by %v", s.request.ID, late)
	}
	if err := p.node.Finish(p.now, s.ID); err != nil {
		p.say("%v", err)
	}
	p.dispatch(p.now)
}

func (p *player) review() {
	holds := map[string]bool{}
	for _, a := range p.node.Review(p.now) {
		text := strings.TrimSpace(fmt.Sprintf("%s %s", a.Action, a.Function+a.Slice))
		if holds[text] = true; !p.said[text] {
			p.say("%s", text)
		}
	}
	p.said = holds
}
