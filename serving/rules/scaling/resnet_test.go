package scaling

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The V100 profile of ResNet in FaST-GShare: throughput in requests/s and p95 in ms by quota (rows, 20 to 100 %) and SMs
// (columns). Its window was so long that its tails say little of latency (F41); it serves the arithmetic.
var (
	resnetSM         = []share.PerMille{60, 120, 240, 500, 600, 800, 1000}
	resnetThroughput = [][]float64{
		{13.5, 18.3, 19.9, 20.1, 20.1, 20.2, 19.3},
		{25.0, 35.1, 37.5, 36.9, 37.6, 37.5, 37.9},
		{34.5, 46.3, 50.7, 50.6, 50.7, 50.6, 49.5},
		{42.5, 58.8, 63.8, 63.4, 62.6, 64.1, 63.4},
		{49.8, 68.6, 73.4, 74.1, 75.0, 75.4, 74.9},
	}
	resnetP95 = [][]int{
		{8300, 550, 450, 470, 470, 480, 1100},
		{250, 160, 150, 160, 160, 160, 150},
		{220, 160, 150, 150, 150, 150, 160},
		{210, 160, 150, 150, 150, 150, 150},
		{220, 160, 150, 150, 150, 140, 150},
	}
)

func resnet() []profile.Point {
	var points []profile.Point
	for row := range resnetThroughput {
		for column, sm := range resnetSM {
			points = append(points, profile.Point{
				Model:      "resnet",
				Resource:   profile.Resource{SM: sm, Quota: share.PerMille(200 * (row + 1)), Device: "V100"},
				Batch:      1,
				Mean:       time.Millisecond, // not published
				P95:        time.Duration(resnetP95[row][column]) * time.Millisecond,
				Throughput: resnetThroughput[row][column],
			})
		}
	}
	return points
}

// within returns the points of the profile whose p95 is at most so many milliseconds.
func within(t *testing.T, p95 int) []Configuration {
	t.Helper()
	choices, err := SLO{Latency: time.Duration(p95) * time.Millisecond, P95: true}.Choices(resnet())
	if err != nil {
		t.Fatal(err)
	}
	return choices
}

const noSLO = 1_000_000

func TestMostEfficientResNet(t *testing.T) {
	for p95, want := range map[int]struct {
		sm, quota   share.PerMille
		throughput  Rate
		perResource Rate // with the throughput's one decimal, the last digits are open
	}{
		noSLO: {60, 200, 13.5, 1125.0},
		200:   {120, 400, 35.1, 731.25},
		400:   {60, 400, 25.0, 1041.67},
	} {
		t.Run(fmt.Sprint(p95), func(t *testing.T) {
			got, err := MostEfficient(within(t, p95))
			if err != nil || got.Share.SMRequest != want.sm || got.Share.QuotaRequest != want.quota || got.Throughput != want.throughput {
				t.Errorf("p95 <= %d ms: %+v, %v, want %+v", p95, got, err, want)
			}
			if d := got.PerResource() - want.perResource; d < -0.01 || d > 0.01 {
				t.Errorf("p95 <= %d ms: %.2f per resource, want %.2f", p95, got.PerResource(), want.perResource)
			}
		})
	}
}

// The SLO itself is kept by a point that just meets it.
func TestChoicesAtTheBound(t *testing.T) {
	if choices := within(t, 140); len(choices) != 1 || choices[0].Throughput != 75.4 {
		t.Errorf("p95 <= 140 ms: %v, want (80 %%, 100 %%) alone", choices)
	}
}

func TestScaleUpResNet(t *testing.T) {
	type size struct{ sm, quota share.PerMille }
	for name, c := range map[string]struct {
		p95  int
		gap  Rate
		want map[size]int
		area share.Area
	}{
		"gap 100":                  {200, 100, map[size]int{{120, 400}: 3}, 144_000},
		"gap 110":                  {200, 110, map[size]int{{120, 400}: 4}, 192_000},
		"gap 100 without an SLO":   {noSLO, 100, map[size]int{{60, 200}: 8}, 96_000},
		"nothing missing":          {200, 0, map[size]int{}, 0},
		"too much by some":         {200, -5, map[size]int{}, 0},
		"exactly two":              {200, 2 * 35.1, map[size]int{{120, 400}: 2}, 96_000},
		"exactly one of the sizes": {200, 35.1 + 19.9, map[size]int{{120, 400}: 2}, 96_000},
	} {
		t.Run(name, func(t *testing.T) {
			added, err := ScaleUp(c.gap, within(t, c.p95), 100)
			if err != nil {
				t.Fatal(err)
			}
			got, area := map[size]int{}, share.Area(0)
			for _, a := range added {
				got[size{a.Share.SMRequest, a.Share.QuotaRequest}]++
				area += a.Share.RequestArea()
			}
			for s, n := range c.want {
				if got[s] != n || len(got) != len(c.want) || area != c.area {
					t.Errorf("%v of area %d, want %v of %d", got, area, c.want, c.area)
				}
			}
			if len(c.want) == 0 && len(added) > 0 {
				t.Errorf("%v, want nothing", added)
			}
		})
	}
}

// The published algorithm takes the slowest configuration that serves more than the rest: area 200,000 for 18.5 requests/s (F6), and 24,000 for
// the rate of a configuration of half that area (F4).
func TestLeastAreaResNet(t *testing.T) {
	all := within(t, noSLO)
	for name, c := range map[string]struct {
		rest Rate
		area share.Area
		t    Rate
	}{
		"between two rates":         {18.5, 24_000, 25.0},
		"a configuration's own one": {13.5, 12_000, 13.5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := leastArea(c.rest, all); got.Share.RequestArea() != c.area || got.Throughput != c.t {
				t.Errorf("%v at %v, want area %d at %v", got.Share, got.Throughput, c.area, c.t)
			}
		})
	}
}

func TestChoicesRefuses(t *testing.T) {
	good := SLO{Latency: time.Second, P95: true}
	for field, broken := range map[string]func(*SLO, []profile.Point) []profile.Point{
		"latency":     func(s *SLO, p []profile.Point) []profile.Point { s.Latency = 0; return p },
		"headroom":    func(s *SLO, p []profile.Point) []profile.Point { s.Headroom = share.Whole; return p },
		"points":      func(*SLO, []profile.Point) []profile.Point { return nil },
		"p95, p99":    func(s *SLO, p []profile.Point) []profile.Point { s.P95 = false; return p },
		"device":      func(_ *SLO, p []profile.Point) []profile.Point { p[7].Resource.Device = "A100"; return p },
		"stage":       func(_ *SLO, p []profile.Point) []profile.Point { p[7].Stage = 1; return p },
		"throughput":  func(_ *SLO, p []profile.Point) []profile.Point { p[7].Throughput = nan(); return p },
		"unservable":  func(s *SLO, p []profile.Point) []profile.Point { s.Latency = 139 * time.Millisecond; return p },
		"unservable ": func(s *SLO, p []profile.Point) []profile.Point { s.Latency, s.Headroom = 200e6, 301; return p },
	} {
		t.Run(field, func(t *testing.T) {
			slo := good
			_, err := func() ([]Configuration, error) { points := broken(&slo, resnet()); return slo.Choices(points) }()
			if field[0] == 'u' {
				if !errors.Is(err, ErrUnservable) {
					t.Errorf("%+v: %v, want it unservable", slo, err)
				}
				field = "latency"
			}
			wantField(t, field, err)
			if field == "headroom" && !strings.Contains(err.Error(), "0 to 999") {
				t.Errorf("%v, want the range", err)
			}
		})
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func wantField(t *testing.T, field string, err error) {
	t.Helper()
	if wrong, ok := errors.AsType[*share.FieldError](err); !ok || wrong.Field != field {
		t.Errorf("error %v, want one of field %s", err, field)
	}
}
