package serving

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// replicas returns the input of a function whose replicas answer a request in 100 ms, hold a fifth of a GPU and start in 2 s, with requests at the
// given times.
func replicas(until time.Duration, change func(*Replicas), at ...time.Duration) *Input {
	out, in := 2, 3
	r := &Replicas{
		Share: share.Share{SMRequest: 500, SMLimit: 500, QuotaRequest: 400, QuotaLimit: share.Whole, Memory: share.MiB}, Rate: 8, Takes: 100 * ms, Ends: 500 * ms,
		Policy: scaling.Policy{Window: 4 * time.Second, Out: out, In: in, SharedFor: 2 * time.Second, Predict: scaling.Kalman},
	}
	if change != nil {
		change(r)
	}
	all := &Input{Functions: []Function{{Name: "f", SLO: 250 * ms, LoadCold: 2 * time.Second, Replicas: r}}, Until: until}
	for _, t := range at {
		all.Arrivals = append(all.Arrivals, arrival.Arrival{At: t})
	}
	return all
}

func one(r *Replicas) { r.Policy.Min = 1 }

// TestReplicas has results that follow by hand from when requests come.
func TestReplicas(t *testing.T) {
	limited := func(r *Replicas) { one(r); r.Share.QuotaLimit, r.Window = 400, 500*ms }
	for name, c := range map[string]struct {
		in                 *Input
		cold, late, refuse int
		slowest            time.Duration
		gpu                float64
	}{
		// It starts as the request comes, and is Hot until four seconds in a row were without a request, at 6 s; in reserve it reserves nothing.
		"from zero":       {replicas(20*time.Second, nil, 250*ms), 1, 1, 0, 2100 * ms, 0.2 * 5.75},
		"minimum":         {replicas(20*time.Second, one, 250*ms), 0, 0, 0, 100 * ms, 0.2 * 20},
		"queue":           {replicas(20*time.Second, one, 250*ms, 250*ms), 0, 0, 0, 200 * ms, 0.2 * 20},
		"refused":         {replicas(20*time.Second, one, 250*ms, 250*ms, 250*ms, 250*ms), 0, 0, 2, 200 * ms, 0.2 * 20},
		"no request":      {replicas(20*time.Second, nil), 0, 0, 0, 0, 0},
		"all wait for it": {replicas(20*time.Second, nil, 0, 0, 0), 1, 3, 0, 2300 * ms, 0.2 * 6},
		"a limit":         {replicas(20*time.Second, limited, 250*ms, 350*ms), 0, 0, 0, 100 * ms, 0.2 * 20},
		"at the limit":    {replicas(20*time.Second, limited, 250*ms, 350*ms, 450*ms), 0, 1, 0, 400 * ms, 0.2 * 20}, // may start 500 ms after the first
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, c.in, "replicas")
			if r.ColdStarts != c.cold || r.Violations != c.late+c.refuse || r.Refused != c.refuse || math.Abs(r.GPUSeconds-c.gpu) > 1e-6 {
				t.Errorf("%+v, want %+v", r, c)
			}
			if r.P99 < c.slowest-ms || r.P99 > c.slowest+ms {
				t.Errorf("slowest %v, want %v", r.P99, c.slowest)
			}
		})
	}
}

// TestReplicasScale: a load of three replicas gets three, and those that it does not need end.
func TestReplicasScale(t *testing.T) {
	var at []time.Duration
	for n := range 200 {
		at = append(at, time.Duration(n)*49*ms)
	}
	r := run(t, replicas(60*time.Second, one, at...), "replicas")
	if r.ColdStarts != 2 || r.Violations == 0 || r.Violations > 60 {
		t.Errorf("%+v, want two more replicas, and requests that miss until they have started", r)
	}
	if most := 0.2 * (60 + 2*20); r.GPUSeconds <= 0.2*(60+2*6) || r.GPUSeconds > most {
		t.Errorf("%.2f GPU-seconds, want at most %.2f", r.GPUSeconds, most)
	}
}

func TestReplicasInvalid(t *testing.T) {
	for field, change := range map[string]func(*Input){
		"functions[0].replicas.share":       func(in *Input) { in.Functions[0].Replicas = nil },
		"functions[0].replicas.takes":       func(in *Input) { in.Functions[0].Replicas.Takes = 0 },
		"functions[0].replicas.ends":        func(in *Input) { in.Functions[0].Replicas.Ends = -1 },
		"functions[0].replicas.quotaWindow": func(in *Input) { in.Functions[0].Replicas.Window = time.Hour },
		"functions[0].replicas.out":         func(in *Input) { in.Functions[0].Replicas.Policy.Out = 5 },
	} {
		t.Run(field, func(t *testing.T) {
			in := replicas(time.Second, nil)
			change(in)
			_, err := Run(t.Context(), in, "replicas")
			if invalid := (*share.FieldError)(nil); !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%v, want an error of %s", err, field)
			}
		})
	}
}

// TestReplicasPhase: requests that come in one second of three, at twice what one replica does on average, get replicas for them, wherever in a second
// they begin.
func TestReplicasPhase(t *testing.T) {
	least, most := 100.0, 0.0
	for _, shift := range []int{0, 1, 3, 5, 7, 9} {
		var at []time.Duration
		for second := time.Duration(0); second < 1200; second += 3 {
			for n := range time.Duration(48) {
				at = append(at, second*time.Second+time.Duration(shift)*100*ms+n*time.Second/48)
			}
		}
		bursts := func(r *Replicas) {
			r.Policy = scaling.Policy{Window: 20 * time.Second, Out: 10, In: 15, Reserve: true, Predict: scaling.Kalman}
		}
		r := run(t, replicas(1201*time.Second, bursts, at...), "replicas")
		least, most = min(least, r.ViolationPercent()), max(most, r.ViolationPercent())
	}
	if most > 5 || most-least > 1 {
		t.Errorf("%.2f to %.2f %% missed", least, most)
	}
}

// TestReplicasShipped: for functions with nothing but replicas, policy gshare is what GPUFunctions get.
func TestReplicasShipped(t *testing.T) {
	at := []time.Duration{0, 0, 250 * ms, 5 * time.Second}
	if a, b := run(t, replicas(20*time.Second, nil, at...), "gshare"), run(t, replicas(20*time.Second, nil, at...), "replicas"); a.GPUSeconds != b.GPUSeconds || a.Violations != b.Violations {
		t.Errorf("%+v, want %+v", a, b)
	}
}
