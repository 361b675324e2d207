package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// geometry is how the eight GPUs of a node are cut: the profiles of each.
type geometry [][]string

func repeat(n int, profiles ...string) geometry {
	var g geometry
	for range n {
		g = append(g, profiles)
	}
	return g
}

// geometries are those of FluidFaaS's Table 7.
var geometries = map[string]geometry{
	"P1": repeat(8, "4g.40gb", "2g.20gb", "1g.10gb"),
	"P2": repeat(8, "3g.40gb", "2g.20gb", "2g.20gb"),
	"Hybrid": append(append(append(
		repeat(1, "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"),
		repeat(2, "2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb")...),
		repeat(4, "3g.40gb", "4g.40gb")...),
		repeat(1, "4g.40gb", "2g.20gb", "1g.10gb")...),
}

func (g geometry) slices(t *testing.T) []Slice {
	t.Helper()
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	var list []Slice
	for gpu, profiles := range g {
		for i, name := range profiles {
			p, ok := m.Profile(name)
			if !ok {
				t.Fatalf("no profile %s", name)
			}
			list = append(list, Slice{fmt.Sprintf("%d/%d", gpu, i), KindOf(p)})
		}
	}
	return list
}

// variant is an application whose components need the given GB, and a ms for each: it fits the slices of Table 5, whole and in pieces.
func variant(gbs ...int) Function {
	f := chain(gbs...)
	for i := range f.Nodes {
		f.Nodes[i].Memory = share.Bytes(gbs[i]) * gb
	}
	return f
}

// The compute slices that monolithic instances and pipelines can use at all, and the instances that fit a node. Light needs
// 1g, medium 2g whole, heavy 3g whole and 2g in pieces. The figures for heavy loads are those of U3: 4 against 6 of each
// GPU's 7 with P1, 3 against 7 with P2, 32 against 46 of 56 with Hybrid.
func TestTable7(t *testing.T) {
	for name, c := range map[string]struct {
		f                    Function
		geometry             string
		monolithic, pipeline int // compute slices
		instances, withPipes int
	}{
		"light P1":      {variant(3, 3, 3), "P1", 56, 56, 24, 24},
		"light P2":      {variant(3, 3, 3), "P2", 56, 56, 24, 24},
		"light Hybrid":  {variant(3, 3, 3), "Hybrid", 56, 56, 26, 26},
		"medium P1":     {variant(8, 4, 4), "P1", 48, 56, 16, 20},
		"medium P2":     {variant(8, 4, 4), "P2", 56, 56, 24, 24},
		"medium Hybrid": {variant(8, 4, 4), "Hybrid", 46, 56, 16, 21},
		"heavy P1":      {variant(16, 16), "P1", 8 * 4, 8 * 6, 8, 12},
		"heavy P2":      {variant(16, 16), "P2", 8 * 3, 8 * 7, 8, 16},
		"heavy Hybrid":  {variant(16, 16), "Hybrid", 32, 46, 9, 12},
	} {
		t.Run(name, func(t *testing.T) {
			list := geometries[c.geometry].slices(t)
			r := rank(t, c.f, kindsOf(list))
			monolithic, pipeline := usable(r, list)
			if monolithic != c.monolithic || pipeline != c.pipeline {
				t.Errorf("%d and %d compute slices, want %d and %d", monolithic, pipeline, c.monolithic, c.pipeline)
			}
			if n := fill(t, r.Monolithic, list); n != c.instances {
				t.Errorf("%d monolithic instances, want %d", n, c.instances)
			}
			if n := fill(t, r.Assign, list); n != c.withPipes {
				t.Errorf("%d instances with pipelines, want %d", n, c.withPipes)
			}
		})
	}
}

// TestStagesOnSeveralGPUs: where each GPU has one small slice free, which holds no instance, the stages of one instance run on
// slices of different GPUs.
func TestStagesOnSeveralGPUs(t *testing.T) {
	f := variant(16, 16)
	all := geometries["P1"].slices(t)
	r := rank(t, f, kindsOf(all))
	byGPU := map[string][]Slice{}
	var left []Slice
	for _, s := range all {
		if s.Kind.Name == "2g.20gb" {
			gpu, _, _ := strings.Cut(s.ID, "/")
			left, byGPU[gpu] = append(left, s), append(byGPU[gpu], s)
		}
	}
	for gpu, own := range byGPU {
		if a, err := r.Assign(own, Demand{SLO: time.Hour}); err == nil {
			t.Errorf("GPU %s alone holds an instance: %+v", gpu, a)
		}
	}
	a, err := r.Assign(left, Demand{SLO: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	gpus := map[string]bool{}
	for _, stage := range a.Slices {
		for _, s := range stage {
			gpu, _, _ := strings.Cut(s.ID, "/")
			gpus[gpu] = true
		}
	}
	if len(a.Slices) != 2 || len(gpus) != 2 {
		t.Errorf("%d stages on %d GPUs, want two on two: %+v", len(a.Slices), len(gpus), a)
	}
	if n := fill(t, r.Assign, left); n != 4 {
		t.Errorf("%d instances on the small slices of 8 GPUs, want 4", n)
	}
}

func kindsOf(list []Slice) []Kind {
	var found []Kind
	seen := map[Kind]bool{}
	for _, s := range list {
		if !seen[s.Kind] {
			seen[s.Kind], found = true, append(found, s.Kind)
		}
	}
	return found
}

// usable counts the compute slices on which the whole function, or a part of some partition, can run.
func usable(r *Ranking, list []Slice) (monolithic, pipeline int) {
	for _, s := range list {
		whole, part := false, false
		for _, p := range r.Partitions() {
			for at := range p.Slices() {
				fits := runs(r.Function(), partAt(p, at), s)
				whole, part = whole || fits && p.Monolithic(), part || fits
			}
		}
		if whole {
			monolithic += s.Kind.Compute
		}
		if part {
			pipeline += s.Kind.Compute
		}
	}
	return monolithic, pipeline
}

// fill starts instances until there is no room.
func fill(t *testing.T, assign func([]Slice, Demand) (Assignment, error), list []Slice) int {
	t.Helper()
	for n := 0; ; n++ {
		a, err := assign(list, Demand{SLO: time.Minute})
		if errors.Is(err, ErrNoFit) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		list = without(list, a)
	}
}

func without(list []Slice, a Assignment) []Slice {
	taken := map[string]bool{}
	for _, stage := range a.Slices {
		for _, s := range stage {
			taken[s.ID] = true
		}
	}
	var rest []Slice
	for _, s := range list {
		if !taken[s.ID] {
			rest = append(rest, s)
		}
	}
	return rest
}
