package fleet

import "github.com/prometheus/client_golang/prometheus"

var (
	labels       = []string{"namespace", "function"}
	replicasDesc = prometheus.NewDesc("gshare_fleet_replicas", "Replicas of functions by what they do: starting, ready, failed (to be started again), restarting (the same, by the platform), draining, stopping.",
		[]string{"namespace", "function", "phase"}, nil)
	requestsDesc = prometheus.NewDesc("gshare_fleet_requests", "Requests to functions now: waiting for a replica, or in_flight at one.", []string{"namespace", "function", "state"}, nil)
	startsDesc   = prometheus.NewDesc("gshare_fleet_starts_total", "Replicas of functions that were started, again or for the first time.", labels, nil)
	gpuTimeDesc  = prometheus.NewDesc("gshare_fleet_gpu_seconds_total",
		"SM request times quota request times GPUs of the replicas of functions, over the time from their starts to their ends: 1 is a whole GPU for a second.", labels, nil)
	failuresDesc = prometheus.NewDesc("gshare_fleet_failures_total", "Replicas of functions that ended by themselves, or were not ready in time.", labels, nil)
)

// newLoopTimes returns the histogram of how long the decisions about all functions take.
func newLoopTimes() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gshare_fleet_loop_seconds", Help: "Time that the decisions about all functions took, once a second.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5},
	})
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(f, c) }

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(c chan<- prometheus.Metric) {
	f.loop.Collect(c)
	for _, s := range f.Status() {
		for _, p := range []phase{starting, ready, backingOff, restarting, draining, stopping} {
			c <- prometheus.MustNewConstMetric(replicasDesc, prometheus.GaugeValue, float64(s.Replicas[string(p)]), s.Name.Namespace, s.Name.Name, string(p))
		}
		c <- prometheus.MustNewConstMetric(requestsDesc, prometheus.GaugeValue, float64(s.Waiting), s.Name.Namespace, s.Name.Name, "waiting")
		c <- prometheus.MustNewConstMetric(requestsDesc, prometheus.GaugeValue, float64(s.InFlight), s.Name.Namespace, s.Name.Name, "in_flight")
		c <- prometheus.MustNewConstMetric(startsDesc, prometheus.CounterValue, float64(s.Starts), s.Name.Namespace, s.Name.Name)
		c <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(s.Failures), s.Name.Namespace, s.Name.Name)
		c <- prometheus.MustNewConstMetric(gpuTimeDesc, prometheus.CounterValue, s.GPUTime.Seconds(), s.Name.Namespace, s.Name.Name)
	}
}
