package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newLoopTimes returns the histograms of how long loops over all functions take, other than the fleet's.
func newLoopTimes() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "gshare_controller_loop_seconds",
		Help:    "Time that a look at all functions took: status compares their objects with what is known and room looks for pods that have no room, once a second; moves looks for replicas that can move to one MIG instance, every 10 s.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5},
	}, []string{"loop"})
}

// observe adds the time since a loop began. The observer may be nil.
func observe(o prometheus.Observer, began time.Time) {
	if o != nil {
		o.Observe(time.Since(began).Seconds())
	}
}
