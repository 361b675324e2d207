package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// FuzzRank reads arbitrary functions, kinds and demands. Those that are accepted result in a valid assignment or a known reason.
func FuzzRank(f *testing.F) {
	for _, function := range []Function{chain(10, 20, 30), diamond(), heavy()} {
		text, err := json.Marshal(function)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), int64(time.Second), 1.0, uint8(3))
	}
	f.Add(`{"name":"f","nodes":[{"name":"a","after":["b"],"memory":1,"times":{"1g.10gb":1}},{"name":"b","after":["a"],"memory":1,"times":{"1g.10gb":1}}]}`, int64(1), 0.0, uint8(0))
	f.Add(`{"name":"f","nodes":[{"name":"a","memory":1125899906842624,"times":{"4g.40gb":3600000000000}}],"transfer":3600000000000}`, int64(-1), 1e300, uint8(255))
	f.Fuzz(func(t *testing.T, text string, slo int64, rate float64, many uint8) {
		var function Function
		if json.Unmarshal([]byte(text), &function) != nil || len(function.Nodes) > 7 {
			t.Skip()
		}
		r, err := Rank(function, kinds)
		if err != nil {
			wantFieldError(t, err)
			return
		}
		var list []Slice
		for i := range int(many) % 12 {
			list = append(list, Slice{fmt.Sprint(i), kinds[i%len(kinds)]})
		}
		d := Demand{SLO: time.Duration(slo), Rate: rate, Candidates: int(many)}
		a, err := r.Assign(list, d)
		if err != nil {
			if !isNoFit(err) {
				wantFieldError(t, err)
			}
			return
		}
		if a.Latency <= 0 || a.Latency > d.SLO || a.Bottleneck <= 0 || a.Outstanding(d.SLO) < 1 || !(a.CV >= 0) {
			t.Errorf("%+v for %+v", a, d)
		}
		if _, err := Migrations([]RunningInstance{{1, r, a, d}}, without(list, a)); err != nil {
			t.Error(err)
		}
	})
}

func wantFieldError(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*share.FieldError](err); !ok || e.Field == "" || len(err.Error()) > 512 {
		t.Errorf("error without a field, or too long: %v", err)
	}
}

// BenchmarkRank: once for each function, offline.
func BenchmarkRank(b *testing.B) {
	for _, n := range []int{5, MaxNodes} {
		times := make([]int, n)
		for i := range times {
			times[i] = 10 + i
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				rank(b, chain(times...), kinds)
			}
		})
	}
}

// BenchmarkAssign: at every start of an instance, on the free half of a node with 8 GPUs.
func BenchmarkAssign(b *testing.B) {
	r := rank(b, chain(10, 20, 30, 40, 50), kinds)
	list := free(large, medium, small, large, medium, small, large, medium, small, large, medium, small)
	for name, d := range map[string]Demand{
		"found":   {SLO: time.Second, Candidates: 4},
		"refused": {SLO: 1 * ms},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Assign(list, d); err != nil && !errors.Is(err, ErrSLO) {
					b.Fatal(err)
				}
			}
		})
	}
}
