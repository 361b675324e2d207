package soak_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sample is one reading of the controller's process. There is one every second.
type sample struct {
	processor time.Duration // used since the controller started
	memory    int64         // resident, in bytes
	pods      int           // number that are Ready
}

// scrape is one reading of the controller's metrics, taken as often as Prometheus would.
type scrape struct {
	at     int // index of the preceding sample
	values map[string]float64
}

// loops maps the loops that go over all functions every second to the histograms of their durations.
var loops = map[string]string{
	"scale": "gshare_fleet_loop_seconds{}", "status": `gshare_controller_loop_seconds{loop="status"}`, "room": `gshare_controller_loop_seconds{loop="room"}`,
}

// recording holds the results of a measurement.
type recording struct {
	functions int
	changes   float64
	samples   []sample // one per second, beginning with the start of the measurement
	scrapes   []scrape // including one at the beginning and one at the end
	writes    []int    // per second
	written   map[string]int
}

// measure records until the configured time is over.
func (w *world) measure(t *testing.T) *recording {
	t.Helper()
	r := &recording{functions: *functionCount, changes: *changes}
	kinds, _, err := w.writes.state()
	if err != nil {
		t.Fatal(err)
	}
	every := min(30*time.Second, *lasts/4)
	began := time.Now()
	for next, until := began, began.Add(*lasts); ; {
		w.sample(t, r)
		if now := time.Now(); !now.Before(next) || !now.Before(until) {
			next = next.Add(every)
			values, err := w.controller.scrape(w.ctx, "gshare_fleet_loop_seconds", "gshare_controller_loop_seconds", "go_goroutines", "go_gc_heap_live_bytes")
			if err != nil {
				t.Fatal(err)
			}
			r.scrapes = append(r.scrapes, scrape{len(r.samples) - 1, values})
			if len(r.scrapes) > 1 {
				t.Log(r.row(len(r.scrapes) - 1))
			} else {
				t.Log(heading)
			}
			if !now.Before(until) {
				break
			}
		}
		w.sleep(t, time.Until(began.Add(time.Duration(len(r.samples))*time.Second)))
	}
	w.profile(t)
	after, seconds, err := w.writes.state()
	if err != nil {
		t.Fatal(err)
	}
	r.written = map[string]int{}
	for kind, n := range after {
		if n -= kinds[kind]; n > 0 {
			r.written[kind] = n
		}
	}
	for at := range r.samples[1:] {
		r.writes = append(r.writes, seconds[began.Unix()+int64(at)+1])
	}
	return r
}

func (w *world) sample(t *testing.T, r *recording) {
	t.Helper()
	processor, err := w.controller.processor()
	if err != nil {
		t.Fatal(err)
	}
	memory, err := w.controller.memory()
	if err != nil {
		t.Fatal(err)
	}
	r.samples = append(r.samples, sample{processor, memory, w.kubelet.ready()})
}

// profile writes profiles if they are requested. Their cost is not part of the measurement.
func (w *world) profile(t *testing.T) {
	t.Helper()
	if *profiles == "" {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	for path, name := range map[string]string{"profile?seconds=30": "cpu.pprof", "heap": "heap.pprof", "allocs": "allocs.pprof"} {
		if err := w.controller.profile(ctx, path, filepath.Join(*profiles, name)); err != nil {
			t.Error(err)
		}
	}
}

const heading = "   s   cores | scale  worst | status worst | room   worst |  RSS MiB  live MiB  goroutines |  pods"

// row returns a line of the table, with what was measured between scrape n-1 and scrape n.
func (r *recording) row(n int) string {
	from, to := r.scrapes[n-1], r.scrapes[n]
	text := fmt.Sprintf("%4d  %6.3f ", to.at, r.cores(from.at, to.at))
	for _, loop := range []string{"scale", "status", "room"} {
		mean, worst := loopTimes(from.values, to.values, loops[loop])
		text += fmt.Sprintf("| %5.3f %s ", mean, worstText(worst))
	}
	last := r.samples[to.at]
	return text + fmt.Sprintf("| %8d %9.0f %11.0f | %5d", last.memory>>20, to.values["go_gc_heap_live_bytes"]/(1<<20), to.values["go_goroutines"], last.pods)
}

func worstText(seconds float64) string {
	if math.IsInf(seconds, 1) {
		return " more"
	}
	return fmt.Sprintf("<%4.2g", seconds)
}

// cores returns the controller's processor time per second between two samples.
func (r *recording) cores(from, to int) float64 {
	return (r.samples[to].processor - r.samples[from].processor).Seconds() / float64(max(1, to-from))
}

// loopTimes returns the mean duration of a loop between two scrapes, and an upper bound of the longest, in seconds. The name of the histogram has the
// form name{labels}.
func loopTimes(from, to map[string]float64, name string) (mean, worst float64) {
	metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
	grown := func(suffix, labels string) float64 {
		key := metric + suffix
		if labels != "" {
			key += "{" + labels + "}"
		}
		return to[key] - from[key]
	}
	count := grown("_count", labels)
	if count == 0 {
		return 0, 0
	}
	worst = math.Inf(1)
	for key := range to {
		rest, found := strings.CutPrefix(key, metric+"_bucket{"+labels)
		if !found {
			continue
		}
		bound, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(rest, ","), `le="`), `"}`), 64)
		if err == nil && to[key]-from[key] == count {
			worst = min(worst, bound)
		}
	}
	return grown("_sum", labels) / count, worst
}

// table returns all rows: one for each pair of consecutive scrapes.
func (r *recording) table() string {
	lines := []string{heading}
	for n := 1; n < len(r.scrapes); n++ {
		lines = append(lines, r.row(n))
	}
	return strings.Join(lines, "\n")
}

// pods returns how many pods the controller created and deleted.
func (r *recording) pods() (created, deleted int) {
	return r.written["create pods"], r.written["delete pods"]
}

// kinds returns the rate of each kind of write, per second.
func (r *recording) kinds() string {
	var lines []string
	for _, kind := range slices.SortedFunc(maps.Keys(r.written), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.written[b], r.written[a]), cmp.Compare(a, b))
	}) {
		lines = append(lines, fmt.Sprintf("%8.2f/s  %s", float64(r.written[kind])/float64(len(r.writes)), kind))
	}
	return strings.Join(lines, "\n")
}

// The limits that the design of serving sets.
const (
	maxLoop       = 0.5 // seconds of one core, every second
	maxMemory     = 1536 << 20
	maxWrites     = 100  // per second
	maxGrowth     = 0.05 // of memory
	writesSpan    = 10   // seconds over which the rate of writes is averaged
	growthSeconds = 600  // a shorter run says nothing about growth
)

// verdict is a limit with the measured value.
type verdict struct {
	what, measured, limit string
	holds                 bool
	known                 bool // whether the run was long enough to tell
	always                bool // applies even to few functions
}

func (r *recording) verdicts() []verdict {
	first, last := r.scrapes[0], r.scrapes[len(r.scrapes)-1]
	looking, worst := 0.0, 0.0
	for _, name := range loops {
		mean, longest := loopTimes(first.values, last.values, name)
		looking, worst = looking+mean, max(worst, longest)
	}
	cores := r.cores(0, len(r.samples)-1)
	memory := slices.MaxFunc(r.samples, func(a, b sample) int { return cmp.Compare(a.memory, b.memory) }).memory
	writes, mean := r.mostWrites()
	all := []verdict{
		{what: "all loops, mean", measured: fmt.Sprintf("%.3f s", looking), limit: fmt.Sprintf("%v s", maxLoop), holds: looking <= maxLoop, known: true},
		{what: "longest loop", measured: worstText(worst) + " s", limit: "none: others use the cores too", holds: true, known: true},
		{what: "processor, of the whole process", measured: fmt.Sprintf("%.3f cores", cores), limit: fmt.Sprintf("%v", maxLoop), holds: cores <= maxLoop, known: true},
		{what: "resident memory, highest", measured: fmt.Sprintf("%d MiB", memory>>20), limit: fmt.Sprintf("%d MiB", maxMemory>>20), holds: memory <= maxMemory, known: true, always: true},
		{what: "writes a second, highest 10 s", measured: fmt.Sprintf("%.1f (mean %.1f)", writes, mean), limit: fmt.Sprint(maxWrites), holds: writes <= maxWrites, known: true, always: true},
	}
	growth, known := r.growth()
	return append(all, verdict{
		what: "growth of memory, and of goroutines", measured: fmt.Sprintf("%+.1f %%", growth*100), limit: fmt.Sprintf("%.0f %%", maxGrowth*100), holds: !known || growth <= maxGrowth, known: known,
	})
}

// mostWrites returns the highest rate of writes over writesSpan consecutive seconds, and the mean rate.
func (r *recording) mostWrites() (most, mean float64) {
	span := min(writesSpan, len(r.writes))
	sum := 0
	for at, n := range r.writes {
		mean += float64(n) / float64(len(r.writes))
		if sum += n; at >= span {
			sum -= r.writes[at-span]
		}
		if at >= span-1 {
			most = max(most, float64(sum)/float64(span))
		}
	}
	return most, mean
}

// growth returns by what fraction the memory, or the number of goroutines if that is more, grew from the second quarter of the run to the last. The
// first quarter is ignored, since a process takes some time until its heap has its final size. The values are medians, since garbage collection makes
// the resident memory rise and fall.
func (r *recording) growth() (part float64, known bool) {
	n := len(r.samples)
	if n < growthSeconds {
		return 0, false
	}
	memory := func(from, to int) float64 {
		var all []int64
		for _, s := range r.samples[from:to] {
			all = append(all, s.memory)
		}
		slices.Sort(all)
		return float64(all[len(all)/2])
	}
	goroutines := func(from, to int) float64 {
		var all []float64
		for _, s := range r.scrapes {
			if s.at >= from && s.at < to {
				all = append(all, s.values["go_goroutines"])
			}
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return max(memory(n-n/4, n)/memory(n/4, n/2), (goroutines(n-n/4, n)+100)/(goroutines(n/4, n/2)+100)) - 1, true // each drain runs a goroutine for a while
}

// store writes the results to a file, together with where and when they were measured.
func (r *recording) store(path string) error {
	type limit struct {
		What     string `json:"what"`
		Measured string `json:"measured"`
		Limit    string `json:"limit"`
		Holds    bool   `json:"holds"`
		Known    bool   `json:"known"`
	}
	stored := struct {
		Provenance provenance     `json:"provenance"`
		Functions  int            `json:"functions"`
		Pods       int            `json:"pods"`
		Seconds    int            `json:"seconds"`
		Changes    float64        `json:"changesPerMinute"`
		Limits     []limit        `json:"limits"`
		Rows       []string       `json:"rows"`
		Writes     map[string]int `json:"writes"`
	}{
		Provenance: currentProvenance(), Functions: r.functions, Pods: r.samples[len(r.samples)-1].pods, Seconds: len(r.samples) - 1, Changes: r.changes,
		Rows: strings.Split(r.table(), "\n"), Writes: r.written,
	}
	for _, v := range r.verdicts() {
		stored.Limits = append(stored.Limits, limit{v.what, v.measured, v.limit, v.holds, v.known})
	}
	text, err := marshal(stored)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
