package serving

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
)

// By hand: the function needs 30 GB, which only 4g has, and takes 36 ms there. A pipeline of three 2g takes 60 ms and two transfers.
func TestFragments(t *testing.T) {
	for _, c := range []struct {
		policy   string
		profiles []string
		served   bool
		takes    time.Duration
	}{
		{"monolithic", []string{"4g.40gb", "2g.20gb"}, true, 36 * ms},
		{"pipelined", []string{"4g.40gb", "2g.20gb"}, true, 36 * ms},
		{"monolithic", []string{"2g.20gb", "2g.20gb", "2g.20gb"}, false, 0},
		{"pipelined", []string{"2g.20gb", "2g.20gb", "2g.20gb"}, true, 80 * ms},
		{"gshare", []string{"2g.20gb", "2g.20gb", "2g.20gb"}, true, 80 * ms},
		{"pipelined", []string{"1g.10gb", "1g.10gb", "1g.10gb"}, false, 0}, // no component fits
	} {
		t.Run(fmt.Sprint(c.policy, c.profiles), func(t *testing.T) {
			in := cutGPUs(1, 11<<30, 4, c.profiles...)
			r, err := Run(context.Background(), in, c.policy)
			if err != nil && c.served {
				t.Fatalf("%s on %v: %v", c.policy, c.profiles, err)
			}
			if served := r.Completed > 0; served != c.served {
				t.Fatalf("%s on %v: %+v", c.policy, c.profiles, r)
			}
			if c.served && r.P50 != c.takes {
				t.Errorf("%s on %v: half of the requests take %v, want %v", c.policy, c.profiles, r.P50, c.takes)
			}
		})
	}
}

// Two requests at once on two stages of a pipeline: three slices work 20 ms for each, and the GPU from the first entry to the last
// exit but for the transfers.
func TestSliceTime(t *testing.T) {
	in := cutGPUs(1, 11<<30, 1, "2g.20gb", "2g.20gb", "2g.20gb")
	in.Arrivals = []arrival.Arrival{{At: time.Second}, {At: 60 * time.Second}, {At: 60 * time.Second}}
	r := run(t, in, "pipelined")
	// One alone: 3 x 20 ms. Two: the second enters 20 ms after the first; stages at 0-40, 30-70, 60-100 ms.
	if want := 0.060 + 0.100; math.Abs(r.GPUSeconds-want) > 1e-6 || math.Abs(r.MIGSeconds-0.180) > 1e-6 {
		t.Errorf("%.4f GPU-seconds and %.4f MIG-seconds, want %.4f and 0.18", r.GPUSeconds, r.MIGSeconds, want)
	}
}

// By hand, as in TestSliceTime: each request runs for 60 ms in all and is passed on twice, 10 ms each; of two at once the second waits 20 ms. The three
// slices are occupied while the instance is there, and work 20 ms for each request.
func TestLatencyPartsAndUse(t *testing.T) {
	in := cutGPUs(1, 11<<30, 1, "2g.20gb", "2g.20gb", "2g.20gb")
	in.Arrivals = []arrival.Arrival{{At: time.Second}, {At: 60 * time.Second}, {At: 60 * time.Second}}
	active := map[time.Duration]float64{}
	in.Used = func(at time.Duration, u MIGUse) {
		if u.Total != 6 || u.Occupied != 0 && u.Occupied != 6 || u.Active > float64(u.Occupied) {
			t.Errorf("%+v at %v", u, at)
		}
		if at != time.Duration(len(active)+1)*time.Second {
			t.Errorf("a report at %v after %d", at, len(active))
		}
		active[at] = u.Active
	}
	r := run(t, in, "pipelined")
	sum := 0.0
	for _, a := range active {
		sum += a
	}
	if len(active) != int(in.Until/time.Second) || math.Abs(sum-3*0.120) > 1e-9 {
		t.Errorf("%d seconds with %.3f compute slices at work in sum, want %v and 0.36", len(active), sum, in.Until)
	}
	first := r.P99 - 80*ms // for which the first one waits, as the instance starts
	if want := (first + 20*ms) / 3; r.Mean != (LatencyParts{want, 0, 20 * ms, 60 * ms}) {
		t.Errorf("%+v, want a queue of %v", r.Mean, want)
	}
}

// TestLatencyPartsOfLoad: under load with more functions than slices, parts add up to the mean latency, and what loads take is there.
func TestLatencyPartsOfLoad(t *testing.T) {
	for _, policy := range []string{"monolithic", "pipelined", "gshare"} {
		in := cutGPUs(6, 11<<30, 150, "4g.40gb", "2g.20gb")
		worked := 0.0
		in.Used = func(at time.Duration, u MIGUse) {
			worked += u.Active
			if u.Active > float64(u.Occupied)+1e-9 || u.Occupied > u.Total {
				t.Errorf("%s: %+v at %v", policy, u, at)
			}
		}
		r := run(t, in, policy)
		if r.Mean.Queue < 0 || r.Mean.Execution <= 0 || worked <= 0 || policy == "monolithic" != (r.Mean.Transfer == 0) {
			t.Errorf("%s: %+v, %.1f compute slices worked", policy, r.Mean, worked)
		}
	}
}

// On a geometry with fragments, pipelines miss no more than whole functions in light load, and at least 10 points less where these
// have too few large slices; gshare is at least as good as pipelines and takes no more GPU time.
func TestPipelinesAgainstWhole(t *testing.T) {
	for name, c := range map[string]struct {
		rate float64
		gain float64
	}{"light": {60, -1}, "heavy": {220, 10}} {
		t.Run(name, func(t *testing.T) {
			in := cutGPUs(6, 11<<30, c.rate, "4g.40gb", "2g.20gb")
			whole, pipelined, gshare := run(t, in, "monolithic"), run(t, in, "pipelined"), run(t, in, "gshare")
			t.Logf("whole %.2f, pipelined %.2f, gshare %.2f %%", whole.ViolationPercent(), pipelined.ViolationPercent(), gshare.ViolationPercent())
			if pipelined.ViolationPercent() > whole.ViolationPercent()-c.gain {
				t.Errorf("pipelines miss %.2f %%, whole functions %.2f %%", pipelined.ViolationPercent(), whole.ViolationPercent())
			}
			if gshare.Violations > pipelined.Violations || gshare.GPUSeconds > pipelined.GPUSeconds*1.001 {
				t.Errorf("gshare %+v, pipelined %+v", gshare, pipelined)
			}
		})
	}
}

func TestSlackQueue(t *testing.T) {
	r := &record{slo: []time.Duration{100 * ms}, arrivals: []arrival.Arrival{{At: 0}, {At: 30 * ms}, {At: 60 * ms}}}
	q := slackQueue{record: r}
	for i := range int32(3) {
		q.add(i)
	}
	q.expire(80*ms, 25*ms) // the first cannot be in time
	if q.liveCount() != 2 || q.len() != 3 {
		t.Fatalf("%d of %d live", q.liveCount(), q.len())
	}
	for _, c := range []struct {
		takes time.Duration
		idle  bool
		want  int32
		ok    bool
	}{
		{60 * ms, true, 2, true},   // too slow for the second, not for the third
		{60 * ms, false, 0, false}, // nothing but the overdue one, and others may come
		{25 * ms, false, 1, true},
		{25 * ms, true, 0, true},
		{25 * ms, true, 0, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			if got, ok := q.pop(80*ms, c.takes, c.idle); ok != c.ok || ok && got != c.want {
				t.Errorf("%v, idle %v: request %d, %v; want %d, %v", c.takes, c.idle, got, ok, c.want, c.ok)
			}
		})
	}
	q = slackQueue{record: r, refuses: true}
	q.add(0)
	if q.expire(time.Second, ms); r.result.Refused != 1 || q.len() != 0 {
		t.Error("an overdue request was not refused")
	}
}
