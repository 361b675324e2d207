package serving

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/arrival"
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
