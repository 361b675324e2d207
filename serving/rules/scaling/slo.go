package scaling

import (
	"fmt"
	"math"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// SLO is a function's latency objective, for 99 % of its requests unless P95 is set.
type SLO struct {
	Latency  time.Duration
	P95      bool           // for 95 % of the requests; p95 can hide the effect of throttling (F41)
	Headroom share.PerMille // fraction of Latency by which measured latencies must stay below it
}

// Choices returns the profiled configurations that meet the SLO. Without this filter, FaST-GShare's Algorithm 1 would always choose the
// smallest share, whose tail latency is useless. The points are measurements of the whole model on one GPU model; points without SMs are
// skipped. Errors are *share.FieldError; if no point meets the SLO they also wrap ErrUnservable.
func (s SLO) Choices(points []profile.Point) ([]Configuration, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if len(points) == 0 {
		return nil, share.Invalid("points", "the profile is empty")
	}
	var choices []Configuration
	shortest := time.Duration(math.MaxInt64)
	for i, p := range points {
		if err := s.check(p, points[0].Resource.Device); err != nil {
			return nil, fmt.Errorf("point %d: %w", i, err)
		}
		if p.Resource.SM == 0 || p.Throughput == 0 {
			continue
		}
		shortest = min(shortest, s.tail(p))
		if s.tail(p) <= s.latencyBound() {
			choices = append(choices, configuration(p))
		}
	}
	if len(choices) == 0 {
		return nil, unservable("latency", "%v, less head-room %v: the shortest tail in the profile is %v", s.Latency, s.latencyBound(), shortest)
	}
	return choices, nil
}

func configuration(p profile.Point) Configuration {
	return Configuration{
		Share: share.Share{
			SMRequest: p.Resource.SM, SMLimit: p.Resource.SM,
			QuotaRequest: p.Resource.Quota, QuotaLimit: p.Resource.Quota,
			Memory: p.Memory,
		},
		Batch:      p.Batch,
		Throughput: Rate(p.Throughput),
	}
}

// latencyBound returns the highest measured tail latency that meets the SLO.
func (s SLO) latencyBound() time.Duration {
	return time.Duration(float64(s.Latency) * (1 - float64(s.Headroom)/float64(share.Whole)))
}

func (s SLO) tail(p profile.Point) time.Duration {
	if s.P95 {
		return p.P95
	}
	return p.P99
}

func (s SLO) check(p profile.Point, device string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	switch {
	case p.Stage != 0:
		return share.Invalid("stage", "%d is not the whole model", p.Stage)
	case p.Resource.Device != device:
		return share.Invalid("device", "%.64q and %.64q do not compare", p.Resource.Device, device)
	case s.tail(p) == 0:
		return share.Invalid("p95, p99", "the tail that the SLO is of was not measured")
	}
	return nil
}

func (s SLO) validate() error {
	switch {
	case s.Latency <= 0:
		return share.Invalid("latency", "%v is not positive", s.Latency)
	case s.Headroom < 0 || s.Headroom >= share.Whole:
		return share.Invalid("headroom", "%d per-mille is outside 0 to %d", s.Headroom, share.Whole-1)
	}
	return nil
}
