package gpumap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestGolden(t *testing.T) {
	crowd := gpu()
	for at := range 30 {
		crowd.Shares = append(crowd.Shares, of(fmt.Sprint("pod-", at), 3, 100, 1))
	}
	for name, got := range map[string]string{
		"slots":           detail(busy(), Options{}),
		"slots-color":     detail(busy(), Options{Color: true}),
		"slots-40":        detail(busy(), Options{Width: 40}),
		"slots-20":        detail(busy(), Options{Width: 20}),
		"boxes":           detail(boxed(), Options{}),
		"slots-50ms":      detail(within(50*time.Millisecond, busy()), Options{}),
		"boxes-1s":        detail(within(time.Second, boxed()), Options{}),
		"too-much-20ms":   detail(within(20*time.Millisecond, gpu(of("a", 70, 60, 1), of("b", 70, 60, 1))), Options{Width: 60}),
		"boxes-color":     detail(boxed(), Options{Width: 60, Color: true}),
		"alone":           detail(gpu(of("train-0", 100, 100, 40)), Options{Width: 60}),
		"unused":          detail(gpu(), Options{Width: 60}),
		"too-much":        detail(gpu(of("a", 70, 60, 1), of("b", 70, 60, 1)), Options{Width: 60}),
		"crowd-16-lines":  detail(crowd, Options{MaxRows: 16}),
		"overview":        overview(fleet(40), Options{}),
		"overview-color":  overview(fleet(12), Options{Width: 60, Color: true}),
		"overview-40":     overview(fleet(40), Options{Width: 40, MaxRows: 24}),
		"overview-one":    overview([]Slice{busy()}, Options{}),
		"overview-none":   overview(nil, Options{}),
		"overview-large":  overview(fleet(1200), Options{Width: 100, MaxRows: 40}),
		"overview-8-rows": overview(fleet(40), Options{MaxRows: 8}),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, got) })
	}
}

func TestNoLineIsTooLong(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for width := 1; width < 130; width++ {
		o := Options{Width: width, Color: width%2 == 0, MaxRows: r.IntN(40)}
		s := anyGPU(r, 40)
		s.Node, s.Model = strings.Repeat("名", r.IntN(60)), strings.Repeat("m\x1b[2J", r.IntN(9))
		for _, text := range []string{detail(s, o), overview(fleet(width), o), overview([]Slice{s}, o)} {
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if o.MaxRows > 0 && len(lines) > o.MaxRows {
				t.Errorf("%d lines, want at most %d:\n%s", len(lines), o.MaxRows, text)
			}
			for _, line := range lines {
				if columns(line) > width {
					t.Errorf("line has %d columns, want at most %d: %q", columns(line), width, line)
				}
			}
			if strings.Contains(text, "\x1b[2J") {
				t.Errorf("the name of a model reaches the terminal unprinted: %q", text)
			}
		}
	}
}

func TestNonsenseDoesNotPanic(t *testing.T) {
	for _, x := range []share.PerMille{-1 << 31, -1, 0, 1001, 1<<31 - 1} {
		for _, rectangles := range []bool{false, true} {
			s := Slice{Rectangles: rectangles, Reserve: x, MemoryTotal: -1, Shares: []Share{{"", share.Share{SMRequest: x, QuotaRequest: 1000}}, {}}}
			detail(s, Options{Width: -1, MaxRows: -1})
			overview([]Slice{s, {}}, Options{Width: 1, MaxRows: 1})
		}
	}
}

func TestOrderOfSharesDoesNotMatter(t *testing.T) {
	s := busy()
	want := detail(s, Options{})
	slices.Reverse(s.Shares)
	if got := detail(s, Options{}); got != want {
		t.Errorf("in another order:\n%s\nwant\n%s", got, want)
	}
	gpus := fleet(20)
	all := overview(gpus, Options{})
	slices.Reverse(gpus)
	if got := overview(gpus, Options{}); got != all {
		t.Errorf("in another order:\n%s\nwant\n%s", got, all)
	}
}

func TestColorChangesNothingElse(t *testing.T) {
	if text := overview(fleet(9), Options{}) + detail(busy(), Options{}); strings.Contains(text, "\x1b") {
		t.Errorf("plain text has colour codes: %q", text)
	}
	if text := detail(busy(), Options{Color: true}); !strings.Contains(text, "\x1b[") {
		t.Errorf("text has no colour: %q", text)
	}
}
