package pipeline

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func running(t *testing.T, id int, f Function, on []Slice, d Demand) RunningInstance {
	t.Helper()
	r := rank(t, f, kinds)
	a, err := r.Assign(on, d)
	if err != nil {
		t.Fatal(err)
	}
	return RunningInstance{id, r, a, d}
}

func TestMigrations(t *testing.T) {
	second := Demand{SLO: time.Second}
	thin := running(t, 1, heavy(), free(small, small, small), second)                            // 320 ms on 3 compute slices
	wide := running(t, 2, heavy(), free(medium, medium), second)                                 // 160 ms on 4
	whole := running(t, 3, heavy(), free(large), second)                                         // no pipeline
	fast := running(t, 4, chain(50, 50), free(small, small), Demand{SLO: time.Second, Rate: 15}) // 110 ms, 20 a second
	on := func(k ...Kind) []Slice { return free(k...) }
	for name, c := range map[string]struct {
		running []RunningInstance
		free    []Slice
		want    map[int]string // instance -> slice
	}{
		"nothing free":                    {[]RunningInstance{thin, wide}, nil, nil},
		"too small":                       {[]RunningInstance{thin, wide}, on(medium, small), nil},
		"a large slice: the widest first": {[]RunningInstance{thin, wide}, on(large), map[int]string{2: "s0"}},
		"two large slices":                {[]RunningInstance{thin, wide}, on(large, middle), map[int]string{2: "s1", 1: "s0"}},
		"no pipeline, no migration":       {[]RunningInstance{whole}, on(middle, large), nil},
		"must carry the rate":             {[]RunningInstance{fast}, on(small), nil},
		"carries the rate":                {[]RunningInstance{fast}, on(medium), map[int]string{4: "s0"}},
		"equal ones: by ID":               {[]RunningInstance{{7, wide.Ranking, wide.Assignment, second}, {5, wide.Ranking, wide.Assignment, second}}, on(large), map[int]string{5: "s0"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.free)
			got, err := Migrations(c.running, c.free)
			if err != nil || len(got) != len(c.want) || !slices.Equal(before, c.free) {
				t.Fatalf("%v (%v), want %v", got, err, c.want)
			}
			for _, m := range got {
				if ids(m.To) != c.want[m.Instance] || !m.To.Partition.Monolithic() {
					t.Errorf("%d to %s, want %s", m.Instance, ids(m.To), c.want[m.Instance])
				}
			}
		})
	}
}

// At 5 requests a second of 50 ms the new slice is used for a quarter of the time: the function can share it.
func TestMigrationUtilisation(t *testing.T) {
	p := running(t, 1, chain(50, 50), free(small, small), Demand{SLO: time.Second, Rate: 15})
	for rate, want := range map[float64]share.PerMille{0: 0, 5: 250, 20: 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			p.Demand.Rate = rate
			got, err := Migrations([]RunningInstance{p}, free(medium))
			if err != nil || len(got) != 1 || got[0].Utilisation != want {
				t.Errorf("%v requests/s: %+v (%v), want %d per mille", rate, got, err, want)
			}
		})
	}
}

// A single slice on which requests would take longer is no improvement.
func TestMigrationIsNotSlower(t *testing.T) {
	f := chain(60, 60)
	f.Transfer = 0
	r := rank(t, f, kinds)
	p := running(t, 1, f, free(large, large), Demand{SLO: time.Second, Rate: 60})
	p.Demand.Rate = 1
	if got, err := Migrations([]RunningInstance{p}, free(middle)); err != nil || got != nil {
		t.Errorf("from %v to %v (%v)", p.Assignment.Latency, got, err)
	}
	if a, err := r.Monolithic(free(middle), p.Demand); err != nil || a.Latency <= p.Assignment.Latency {
		t.Errorf("the test is void: %v against %v (%v)", a.Latency, p.Assignment.Latency, err)
	}
}

func TestMigrationsRefuse(t *testing.T) {
	p := running(t, 1, heavy(), free(medium, medium), Demand{SLO: time.Second})
	p.Demand.Rate = math.NaN()
	_, err := Migrations([]RunningInstance{p}, free(large))
	wantField(t, "rate", err)
	p.Demand.Rate = 0
	_, err = Migrations([]RunningInstance{p}, []Slice{{"", large}})
	wantField(t, "free[0].id", err)
}
