package gpumap

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSummaryCountsWhatIsLeftOut(t *testing.T) {
	g := groups(fleet(100))[0]
	need := len(g.rows(defaultWidth))
	for lines := 1; lines <= need; lines++ {
		p := newPage(Options{})
		p.drawGroup(g, g.rows(p.Width), lines)
		text, rest := strings.Join(p.lines, "\n"), 0
		if _, summary, ok := strings.Cut(text, "model G2: "); ok {
			if _, err := fmt.Sscanf(summary, "%d full", &rest); err != nil {
				t.Fatal(err)
			}
		}
		if seen := strings.Count(text, glyphs[full]); seen+rest != g.full {
			t.Errorf("%d full GPUs are drawn and %d left out, want %d together:\n%s", seen, rest, g.full, text)
		}
		if len(p.lines) != lines {
			t.Errorf("%d lines, want %d", len(p.lines), lines)
		}
	}
}

func TestDistribute(t *testing.T) {
	for _, tc := range []struct {
		lines      int
		need, want []int
	}{
		{0, []int{5}, []int{0}},
		{3, nil, []int{}},
		{3, []int{9, 1, 1}, []int{1, 1, 1}},
		{11, []int{60, 10, 1}, []int{8, 2, 1}},
		{99, []int{60, 10}, []int{60, 10}},
	} {
		t.Run(fmt.Sprint(tc.lines, tc.need), func(t *testing.T) {
			if got := distribute(tc.lines, tc.need); !slices.Equal(got, tc.want) {
				t.Errorf("distribute(%d, %v) = %v, want %v", tc.lines, tc.need, got, tc.want)
			}
		})
	}
}

func TestInteresting(t *testing.T) {
	plain, twin := gpu(of("a", 10, 100, 1), of("b", 10, 100, 1), of("c", 10, 100, 1)), busy()
	twin.Index = 9
	gpus := []Slice{gpu(), plain, twin, busy(), gpu(of("a", 10, 100, 1), of("b", 10, 50, 1))}
	for n, want := range [][]Slice{{}, {busy()}, {busy(), gpus[4]}, {busy(), gpus[4], plain}, {busy(), gpus[4], plain, twin}, {busy(), gpus[4], plain, twin}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			got := Interesting(gpus, n)
			if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("Interesting(%d) = %+v, want %+v", n, got, want)
			}
		})
	}
	if got := Interesting(nil, -1); len(got) != 0 {
		t.Errorf("of nothing, %v is interesting", got)
	}
}

func BenchmarkOverview(b *testing.B) {
	gpus := fleet(1200)
	for b.Loop() {
		overview(gpus, Options{Width: 120, Color: true})
	}
}
