package standalone

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// unhookedWatch finds runs of which a program has not loaded the hook: that of a run without any session, or one that the driver lists on a device of
// the run. It ends no run.
type unhookedWatch struct {
	mu    sync.Mutex        // guards the following
	found map[string]string // why, by run ID
}

// reasonOf returns why a program of a run has not loaded the hook; empty if none is known to.
func (u *unhookedWatch) reasonOf(run string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.found[run]
}

// observe looks once at the programs of the runs that are older than an age, before which gshare run may still be about to start the program.
func (u *unhookedWatch) observe(runs []*run, processes []gpu.Process, age time.Duration) {
	found := map[string]string{}
	for _, r := range runs {
		if r.container == nil || time.Since(r.Started) < age {
			continue
		}
		for _, pid := range withoutSession(r, processes) {
			if loaded, err := process.MappedLibraries(pid); err == nil {
				if why := watchdog.WhyUnhooked(loaded); why != "" {
					found[r.ID] = why
				}
			}
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.found = found
}

// withoutSession returns the processes that use devices of a run without a session, and the run's own process if none of the run has a session.
func withoutSession(r *run, processes []gpu.Process) (pids []int) {
	var sessions []int
	for _, v := range r.container.Status().VGPUs {
		for _, p := range v.Processes {
			sessions = append(sessions, p.PID)
		}
	}
	if len(sessions) == 0 && !r.dead {
		pids = append(pids, r.PID)
	}
	for _, p := range processes {
		if slices.Contains(r.Devices, p.Slice) && !slices.Contains(sessions, p.PID) && (p.PID == r.PID || inCgroupOf(r, p.PID)) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

var unhookedDesc = prometheus.NewDesc("gshare_run_unhooked", "1 while a program of a run has not loaded the hook, and so is not limited in time.",
	[]string{"container"}, nil)

// Describe implements prometheus.Collector.
func (*unhookedWatch) Describe(out chan<- *prometheus.Desc) { out <- unhookedDesc }

// Collect implements prometheus.Collector.
func (u *unhookedWatch) Collect(out chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.found {
		out <- prometheus.MustNewConstMetric(unhookedDesc, prometheus.GaugeValue, 1, id)
	}
}
