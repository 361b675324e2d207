package gpumap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestEveryShareIsShown(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		s := anyGPU(r, 40)
		text := detail(s, Options{Width: 20 + r.IntN(100)})
		for at, x := range sortedShares(s.Shares) {
			if want := fmt.Sprintf("%c", letterOf(at)); !strings.Contains(text, want) || !strings.Contains(text, x.Pod) {
				t.Fatalf("share %s of %s is missing:\n%s", want, x.Pod, text)
			}
		}
	}
}

func TestEveryShareHasCells(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	drawn := 0
	for range 2000 {
		s := anyGPU(r, 10)
		s.Shares = sortedShares(s.Shares)
		how, ok := s.plan()
		if !ok {
			continue
		}
		drawn++
		p := how.draw(64, max(how.tall(), usual))
		for who := range s.Shares {
			if !slices.ContainsFunc(p.blocks, func(b block) bool { return b.who == who }) {
				t.Fatalf("share %d has no cell of %+v", who, p)
			}
		}
		checkBlocks(t, p)
	}
	if drawn < 200 {
		t.Errorf("only %d of the GPUs could be drawn", drawn)
	}
}

// checkBlocks wants all blocks inside the picture and apart from each other, so what a turn stacks fits its height.
func checkBlocks(t *testing.T, p picture) {
	t.Helper()
	for at, b := range p.blocks {
		if b.left < 0 || b.right > p.width || b.bottom < 0 || b.top > p.height {
			t.Fatalf("block %+v leaves the picture of %d x %d", b, p.width, p.height)
		}
		for _, o := range p.blocks[:at] {
			if b.left < o.right && o.left < b.right && b.bottom < o.top && o.bottom < b.top {
				t.Fatalf("blocks %+v and %+v overlap", b, o)
			}
		}
	}
}

// TestRectanglesNeedTheReserve: what is drawn as rectangles fits if it can be admitted, and the reserve that takes is named.
// A share without SM-time has neither turn nor rectangle, and stands in the legend. The others are drawn as without it.
func TestShareWithoutSMTime(t *testing.T) {
	for _, rectangles := range []bool{false, true} {
		s := gpu(of("p/idle", 0, 0, 8), of("p/a", 60, 40, 8), of("p/b", 60, 40, 8))
		s.Rectangles = rectangles
		got := detail(s, Options{Width: 100})
		if strings.Contains(got, "do not fit") || !strings.Contains(got, "p/idle") || !strings.Contains(got, "3 shares") {
			t.Errorf("rectangles: %t\n%s", rectangles, got)
		}
	}
}

func TestRectanglesNeedTheReserve(t *testing.T) {
	const doNot, kept = "these shares do not fit together", "5% of the window kept for switching turns"
	for name, c := range map[string]struct {
		shares     []Share
		fits, kept bool
	}{
		"turns that leave the reserve": {[]Share{of("a", 100, 50, 1), of("b", 100, 45, 1)}, true, true},
		"turns that leave none":        {[]Share{of("a", 100, 50, 1), of("b", 100, 50, 1)}, false, true},
		"without turns no reserve":     {[]Share{of("a", 60, 100, 1), of("b", 40, 100, 1)}, true, false},
		"in time but not in place":     {[]Share{of("a", 50, 60, 1), of("b", 50, 60, 1), of("c", 50, 60, 1)}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := gpu(c.shares...)
			s.Rectangles = true
			text := detail(s, Options{})
			if fits := !strings.Contains(text, doNot); fits != c.fits || strings.Contains(text, kept) != c.kept {
				t.Errorf("fits %v, want %v; reserve named %v, want %v:\n%s", fits, c.fits, !c.kept, c.kept, text)
			}
		})
	}
}

func TestLowPictureStaysInside(t *testing.T) {
	for sm := 1; sm < 100; sm++ {
		s := gpu()
		for at := range 100 / sm {
			s.Shares = append(s.Shares, of(fmt.Sprint(at), sm, 100, 1))
		}
		how, ok := s.plan()
		if !ok {
			t.Fatalf("%d shares of %d%% do not fit", len(s.Shares), sm)
		}
		for height := 1; height < 24; height++ {
			checkBlocks(t, how.draw(8, height))
		}
	}
}
