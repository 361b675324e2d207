package simulation

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Total is what a GPU has run since the simulation began. Kernels and copies whose process ended before them do not count.
type Total struct {
	Kernels int           // completed
	Time    time.Duration // sum of the times from start to end, even of kernels that ran side by side
	Copies  time.Duration // the same for copies between host and device
}

// Totals returns what each GPU has run.
func (s *Simulation) Totals() []Total {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.totals)
}

var (
	kernelsTotal = prometheus.NewDesc("gshare_simulation_kernels_total", "Kernels that a simulated GPU has completed.", []string{"gpu"}, nil)
	kernelTime   = prometheus.NewDesc("gshare_simulation_kernel_seconds_total",
		"Sum of the times of these kernels on the simulation's clock, without their time in queues.", []string{"gpu"}, nil)
)

// Describe sends the descriptions of the metrics.
func (s *Simulation) Describe(to chan<- *prometheus.Desc) { to <- kernelsTotal; to <- kernelTime }

// Collect sends the metrics of all GPUs.
func (s *Simulation) Collect(to chan<- prometheus.Metric) {
	for i, t := range s.Totals() {
		gpu := strconv.Itoa(i)
		to <- prometheus.MustNewConstMetric(kernelsTotal, prometheus.CounterValue, float64(t.Kernels), gpu)
		to <- prometheus.MustNewConstMetric(kernelTime, prometheus.CounterValue, t.Time.Seconds(), gpu)
	}
}
