package pipeline

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	ms = time.Millisecond
	gb = share.Bytes(1 << 30)
)

// small, medium and large are the slices of an A100-80GB that FluidFaaS cuts it into.
var (
	small  = Kind{"1g.10gb", 1, 10 * gb}
	medium = Kind{"2g.20gb", 2, 20 * gb}
	middle = Kind{"3g.40gb", 3, 40 * gb}
	large  = Kind{"4g.40gb", 4, 40 * gb}
	kinds  = []Kind{large, small, medium, middle}

	double = Kind{"1g.20gb", 1, 20 * gb} // as much compute as small, as much memory as medium
)

// node takes the given time on 1g, half of it on 2g, and so on.
func node(name string, memory share.Bytes, on1g time.Duration, after ...string) Node {
	n := Node{Name: name, After: after, Memory: memory, Times: map[string]time.Duration{}}
	for _, k := range append(kinds, double) {
		n.Times[k.Name] = on1g / time.Duration(k.Compute)
	}
	return n
}

// chain is a function whose nodes take the given times, in ms, on 1g, and a GB each.
func chain(times ...int) Function {
	f := Function{Name: "f", Transfer: 10 * ms}
	var after []string
	for i, t := range times {
		name := string(rune('a' + i))
		f.Nodes = append(f.Nodes, node(name, gb, time.Duration(t)*ms, after...))
		after = []string{name}
	}
	return f
}

// diamond is a before b and c, which are independent, and d behind both.
func diamond() Function {
	return Function{Name: "f", Transfer: 10 * ms, Nodes: []Node{
		node("a", gb, 40*ms), node("b", gb, 80*ms, "a"), node("c", gb, 60*ms, "a"), node("d", gb, 20*ms, "b", "c"),
	}}
}

func wantField(t *testing.T, field string, err error) {
	t.Helper()
	e, ok := errors.AsType[*share.FieldError](err)
	if !ok || e.Field != field || strings.TrimSpace(e.Reason) == "" {
		t.Errorf("error %v, want one of field %q", err, field)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		field  string
		broken func(*Function)
	}{
		"no name":           {"name", func(f *Function) { f.Name = "" }},
		"no nodes":          {"nodes", func(f *Function) { f.Nodes = nil }},
		"too many nodes":    {"nodes", func(f *Function) { *f = chain(make([]int, MaxNodes+1)...) }},
		"negative transfer": {"transfer", func(f *Function) { f.Transfer = -1 }},
		"endless transfer":  {"transfer", func(f *Function) { f.Transfer = math.MaxInt64 }},
		"nameless node":     {"nodes[1].name", func(f *Function) { f.Nodes[1].Name = "" }},
		"same name":         {"nodes[2].name", func(f *Function) { f.Nodes[2].Name = "a" }},
		"unknown input":     {"nodes[1].after", func(f *Function) { f.Nodes[1].After = []string{"x"} }},
		"reads itself":      {"nodes", func(f *Function) { f.Nodes[1].After = []string{"b"} }},
		"cycle":             {"nodes", func(f *Function) { f.Nodes[0].After = []string{"c"} }},
		"no memory":         {"nodes[0].memory", func(f *Function) { f.Nodes[0].Memory = 0 }},
		"negative memory":   {"nodes[0].memory", func(f *Function) { f.Nodes[0].Memory = math.MinInt64 }},
		"endless memory":    {"nodes[0].memory", func(f *Function) { f.Nodes[0].Memory = math.MaxInt64 }},
		"no time":           {"nodes[0].times", func(f *Function) { f.Nodes[0].Times = nil }},
		"zero time":         {"nodes[0].times", func(f *Function) { f.Nodes[0].Times["1g.10gb"] = 0 }},
		"negative time":     {"nodes[0].times", func(f *Function) { f.Nodes[0].Times["1g.10gb"] = -1 }},
		"endless time":      {"nodes[0].times", func(f *Function) { f.Nodes[0].Times["1g.10gb"] = math.MaxInt64 }},
		"negative chance":   {"nodes[0].chance", func(f *Function) { f.Nodes[0].Chance = -1 }},
		"chance above all":  {"nodes[0].chance", func(f *Function) { f.Nodes[0].Chance = 1001 }},
	} {
		t.Run(name, func(t *testing.T) {
			f := chain(1, 2, 3)
			c.broken(&f)
			wantField(t, c.field, f.Validate())
			_, err := Rank(f, kinds)
			wantField(t, c.field, err)
		})
	}
	if f := diamond(); f.Validate() != nil {
		t.Error(f.Validate())
	}
}

func TestRankRefusesKinds(t *testing.T) {
	for field, broken := range map[string][]Kind{
		"kinds":            nil,
		"kinds[0].name":    {{"", 1, gb}},
		"kinds[0].compute": {{"x", 0, gb}},
		"kinds[0].memory":  {{"x", 1, -gb}},
	} {
		_, err := Rank(chain(1), broken)
		wantField(t, field, err)
	}
	_, err := Rank(chain(1), []Kind{small, {"1g.10gb", 1, 9 * gb}})
	wantField(t, "kinds", err)
	f := chain(1, 2)
	f.Nodes[1].Memory = 11 * gb
	_, err = Rank(f, []Kind{small})
	wantField(t, "nodes[1]", err)
	f = chain(1, 2)
	f.Nodes[1].Times = map[string]time.Duration{"other": 1}
	_, err = Rank(f, kinds)
	wantField(t, "nodes[1]", err)
}

func TestWhole(t *testing.T) {
	f := chain(10, 20, 30)
	delete(f.Nodes[1].Times, "4g.40gb")
	w := f.Whole()
	if _, has := w.Times["4g.40gb"]; has || w.Memory != 3*gb || w.Times["1g.10gb"] != 60*ms || w.Times["2g.20gb"] != 30*ms || len(w.Times) != 4 {
		t.Errorf("%+v", w)
	}
}

// trim takes the blanks off that make the keys of a table differ.
func trim(field string) string { return strings.TrimRight(field, " ") }
