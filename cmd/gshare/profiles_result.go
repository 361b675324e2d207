package main

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// profileResult is the JSON form of a profile: its record, the points that latency models and gshare-model --points read, and the recommended
// share.
type profileResult struct {
	*profiler.Record
	Points      []profile.Point `json:"points"`
	Recommended *recommendation `json:"recommended,omitempty"` // missing if no share meets the objective
}

// recommendation holds the values to put into a GPUFunction or a pod.
type recommendation struct {
	SM                int     `json:"sm"`
	SMLimit           int     `json:"smLimit,omitempty"` // useful where others leave SMs idle; missing if the search does not find it
	Quota             int     `json:"quota"`
	Memory            string  `json:"memory"`
	MaxBatch          int     `json:"maxBatch"`
	RequestsPerSecond float64 `json:"requestsPerSecond"` // kernels a second for a training job
}

// leastMemory is the memory, in MiB, that is recommended to a program that has allocated nothing: a share must have some.
const leastMemory = 64

// recommend returns the recommendation of a record, or nil.
func recommend(r *profiler.Record, s search.Strategy) *recommendation {
	best, err := r.Recommend(s)
	if err != nil {
		return nil
	}
	return &recommendation{
		SM: int(best.Resource.SM / 10), SMLimit: int(best.SMLimit / 10), Quota: int(best.Resource.Quota / 10), Memory: fmt.Sprintf("%dMi", max(best.Memory/share.MiB, leastMemory)),
		MaxBatch: best.Batch, RequestsPerSecond: best.Rate,
	}
}

// The values of --strategy.
const (
	growth    = "growth"
	bisection = "bisection"
	grid      = "grid"
)

// strategyOf returns the search that a plan names, or nil if the name is none of the values of --strategy.
func strategyOf(p *profiler.Plan, slo time.Duration, device string) search.Strategy {
	switch p.Strategy {
	case growth:
		return search.Growth{SLO: slo, Step: p.Step, MaxBatch: p.MaxBatch, Device: device}
	case bisection:
		return search.Bisection{Step: p.Step, Batch: p.MaxBatch, Device: device}
	case grid:
		return search.FaSTGrid(device, p.MaxBatch)
	}
	return nil
}
