package soak_test

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

// quiet returns the recording of a run of some seconds that stays within all limits.
func quiet(seconds int) *recording {
	r := &recording{functions: 10_000, written: map[string]int{}}
	for n := range seconds + 1 {
		r.samples = append(r.samples, sample{processor: time.Duration(n) * 400 * time.Millisecond, memory: 1 << 30, pods: 30_000})
		if n > 0 {
			r.writes = append(r.writes, 90)
		}
		if n%30 == 0 {
			r.scrapes = append(r.scrapes, scrape{n, loopMetrics(n, 0.1)})
		}
	}
	return r
}

// loopMetrics returns the controller's metrics after each loop has run count times, for the given number of seconds each.
func loopMetrics(count int, each float64) map[string]float64 {
	values := map[string]float64{"go_goroutines": 300}
	for name, labels := range map[string]string{"gshare_fleet_loop_seconds": "", "gshare_controller_loop_seconds": `loop="status"`} {
		own, bucket := "", ""
		if labels != "" {
			own, bucket = "{"+labels+"}", labels+","
		}
		n := float64(count)
		maps.Copy(values, map[string]float64{
			name + "_count" + own: n, name + "_sum" + own: n * each,
			name + "_bucket{" + bucket + `le="0.05"}`: 0, name + "_bucket{" + bucket + `le="0.25"}`: n, name + "_bucket{" + bucket + `le="+Inf"}`: n,
		})
	}
	return values
}

// TestVerdicts: each limit is violated by a run that exceeds it, and by no other run.
func TestVerdicts(t *testing.T) {
	for name, test := range map[string]struct {
		seconds int
		change  func(*recording)
		missed  []string
	}{
		"all are kept": {1200, func(*recording) {}, nil},
		"too short for growth": {300, func(r *recording) {
			for n := range r.samples {
				r.samples[n].memory += int64(n) << 20
			}
		}, nil},
		"long loops": {1200, func(r *recording) {
			for n := range r.scrapes {
				r.scrapes[n].values = loopMetrics(30*n, 0.3)
			}
		}, []string{"all loops, mean"}},
		"processor":               {1200, func(r *recording) { r.samples[1200].processor = 601 * time.Second }, []string{"processor, of the whole process"}},
		"memory for a second":     {1200, func(r *recording) { r.samples[700].memory = maxMemory + 1 }, []string{"resident memory, highest"}},
		"a second of many writes": {1200, func(r *recording) { r.writes[500] = 180 }, nil},
		"ten seconds of many writes": {1200, func(r *recording) {
			for n := 1190; n < 1200; n++ {
				r.writes[n] = 101
			}
		}, []string{"writes a second, highest 10 s"}},
		"memory grows": {1200, func(r *recording) {
			for n := range r.samples {
				r.samples[n].memory += int64(n) << 17
			}
		}, []string{"growth of memory, and of goroutines"}},
		"goroutines grow": {1200, func(r *recording) {
			for n := range r.scrapes {
				r.scrapes[n].values["go_goroutines"] += float64(10 * n)
			}
		}, []string{"growth of memory, and of goroutines"}},
		"memory of the start": {1200, func(r *recording) {
			for n := range 300 {
				r.samples[n].memory /= 2
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := quiet(test.seconds)
			test.change(r)
			var missed []string
			for _, v := range r.verdicts() {
				if !v.holds {
					missed = append(missed, v.what)
				}
			}
			if !slices.Equal(missed, test.missed) {
				t.Errorf("misses %q, want %q", missed, test.missed)
			}
		})
	}
}

func TestLoopTimes(t *testing.T) {
	before, after := loopMetrics(10, 0.1), loopMetrics(30, 0.2)
	for _, loop := range []string{"scale", "status"} {
		if mean, worst := loopTimes(before, after, loops[loop]); math.Abs(mean-0.25) > 1e-9 || worst != 0.25 {
			t.Errorf("%s: mean %v, worst %v, want 0.25 each", loop, mean, worst)
		}
	}
	if mean, worst := loopTimes(before, after, loops["room"]); mean != 0 || worst != 0 {
		t.Errorf("a loop that has not run took %v, at worst %v", mean, worst)
	}
}

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics([]byte("# HELP go_goroutines Number.\ngo_goroutines 12\ngshare_fleet_loop_seconds_bucket{le=\"+Inf\"} 3\nother 4\n"), "go_goroutines", "gshare_fleet_loop")
	want := map[string]float64{"go_goroutines": 12, `gshare_fleet_loop_seconds_bucket{le="+Inf"}`: 3}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
