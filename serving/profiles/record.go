package profiles

import (
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// recordOf returns the trials in a status as a record of package profiler.
func recordOf(name string, s *api.GPUProfileStatus, d device) *profiler.Record {
	r := &profiler.Record{Version: profiler.RecordVersion, Model: name, Plan: profiler.Plan{Memory: share.Bytes(d.memoryMiB) * share.MiB}}
	for _, p := range s.Points {
		if p.KernelsPerSecond > 0 {
			p.RequestsPerSecond, p.MeanMicroseconds = p.KernelsPerSecond, max(1, int64(1e6/p.KernelsPerSecond))
		}
		utilisation := share.PerMille(0)
		if p.GPUTimePercent != nil {
			utilisation = perMille(*p.GPUTimePercent)
		}
		r.Trials = append(r.Trials, profiler.Trial{
			Point: profile.Point{
				Model: name, Resource: profile.Resource{SM: perMille(p.SM), Quota: perMille(p.Quota), Device: d.model}, Batch: p.Batch,
				Mean: time.Duration(p.MeanMicroseconds) * time.Microsecond, P95: time.Duration(p.P95Microseconds) * time.Microsecond,
				P99: time.Duration(p.P99Microseconds) * time.Microsecond, Throughput: p.RequestsPerSecond, Memory: share.Bytes(p.MemoryMiB) * share.MiB,
				Utilisation: utilisation,
			},
			Failed: p.Failed, Plateau: p.Plateau, P50: float64(p.LatencyP50Microseconds) / 1000, P99: float64(p.LatencyP99Microseconds) / 1000,
			ClientLate: p.ClientLate, Confirmed: p.Confirmed, GPUSeconds: float64(p.GPUSeconds),
		})
	}
	return r
}

// measured returns the point with the results of a trial.
func measured(sm, quota int64, batch int, t *profiler.Trial) api.ProfilePoint {
	p := api.ProfilePoint{
		SM: sm, Quota: quota, Batch: batch,
		MeanMicroseconds: max(1, t.Point.Mean.Microseconds()), P95Microseconds: t.Point.P95.Microseconds(), P99Microseconds: t.Point.P99.Microseconds(),
		Plateau: t.Plateau,
	}
	setRate(&p, t)
	return p
}

// confirmed returns a point with the results of a second, longer measurement of its rate. If the client was too slow to tell, the latencies stay.
func confirmed(p api.ProfilePoint, t *profiler.Trial) api.ProfilePoint {
	p50, p99 := p.LatencyP50Microseconds, p.LatencyP99Microseconds
	setRate(&p, t)
	if t.ClientLate && t.P99 == 0 {
		p.LatencyP50Microseconds, p.LatencyP99Microseconds = p50, p99
	}
	return p
}

// setRate sets the rate within the objective.
func setRate(p *api.ProfilePoint, t *profiler.Trial) {
	p.RequestsPerSecond, p.ClientLate, p.Confirmed = t.Point.Throughput, t.ClientLate, t.Confirmed
	p.LatencyP50Microseconds, p.LatencyP99Microseconds = microseconds(t.P50), microseconds(t.P99)
}

func microseconds(milliseconds float64) int64 { return int64(math.Round(1000 * milliseconds)) }

// setPoint adds a point to those of a status, or replaces the point with the same setting.
func setPoint(s *api.GPUProfileStatus, p api.ProfilePoint) {
	if at := indexOf(s, p.SM, p.Quota, p.Batch); at >= 0 {
		s.Points[at] = p
		return
	}
	s.Points = append(s.Points, p)
}

func indexOf(s *api.GPUProfileStatus, sm, quota int64, batch int) int {
	return slices.IndexFunc(s.Points, func(p api.ProfilePoint) bool { return p.SM == sm && p.Quota == quota && p.Batch == batch })
}

// recommendationOf returns what a function or a training should get. The memory is what a user has set, or else what was measured, or, if
// none was measured, all of the GPU's.
func recommendationOf(best profiler.Recommendation, spec *api.GPUProfileSpec, d device) *api.ProfileRecommendation {
	r := &api.ProfileRecommendation{
		SM: percent(best.Resource.SM), SMLimit: percent(best.SMLimit), Quota: percent(best.Resource.Quota), Memory: spec.Memory, MaxBatch: best.Batch,
	}
	switch {
	case spec.Memory != "":
	case best.Memory > 0:
		r.Memory = api.Quantity(fmt.Sprintf("%dMi", best.Memory/share.MiB))
	default:
		r.Memory = api.Quantity(fmt.Sprintf("%dMi", d.memoryMiB))
	}
	if spec.Training != nil {
		r.KernelsPerSecond = best.Rate
		return r
	}
	r.RequestsPerSecond = best.Rate
	for _, s := range best.Smaller {
		r.Smaller = append(r.Smaller, api.MeasuredShare{SM: percent(s.Resource.SM), Quota: percent(s.Resource.Quota), RequestsPerSecond: s.Rate})
	}
	return r
}

// ranAt returns when a client was started and when it ended; zero if that is not known.
func ranAt(client *v1.Pod) (started, ended time.Time) {
	if client == nil {
		return time.Time{}, time.Time{}
	}
	for _, c := range client.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			started, ended = c.State.Terminated.StartedAt.Time, c.State.Terminated.FinishedAt.Time
		}
	}
	return started, ended
}

// charge adds the time for which the GPU was reserved to the point and to the status.
func charge(status *api.GPUProfileStatus, point *api.ProfilePoint, target, client *v1.Pod, now time.Time) {
	begin, end := status.Attempt.Since.Time, now
	if target != nil {
		for _, c := range target.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && c.LastTransitionTime.After(begin) {
				begin = c.LastTransitionTime.Time
			}
		}
	}
	if _, ended := ranAt(client); ended.After(begin) {
		end = ended
	}
	seconds := max(0, int64(end.Sub(begin).Seconds()+0.5))
	point.GPUSeconds += seconds
	status.GPUSeconds += seconds
}
