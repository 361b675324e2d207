package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// A training answers no requests, so its trials have no client. It runs alone in a trial, and the agent of its node counts the kernels that it launches
// (kube.Work). For each share a new pod runs it from the start.

const (
	defaultSteady = 15 * time.Second
	// workWait is the time within which a counting agent reports the first count of a running program, and after that the next one.
	workWait = 2 * time.Minute
	// trainingPause is the time after which to look at a training again even if nothing was reported.
	trainingPause = 30 * time.Second
)

// checkTraining returns a *share.FieldError for a training that cannot be measured. The API server also refuses such a training.
func checkTraining(p *api.GPUProfile) error {
	switch {
	case p.Spec.Training == nil:
		return nil
	case p.Spec.FunctionRef != nil:
		return share.Invalid("spec.training", "a function is no training: write a template instead of functionRef")
	case p.Spec.Search.Strategy != api.Bisection || p.Spec.Search.MaxBatch > 1:
		return share.Invalid("spec.search", "a training needs strategy Bisection, without maxBatch")
	}
	return nil
}

// sloOf returns the objective of the template of a profile. A training gets one that is never missed, because nothing is compared with it.
func sloOf(p *api.GPUProfile) api.SLO {
	if p.Spec.Training != nil {
		return api.SLO{Latency: api.Duration(time.Hour.String())}
	}
	return api.SLO{Latency: p.Spec.SLO.Latency}
}

// watch waits until the agent's counts show how fast a training runs on its share.
func (s *state) watch(status *api.GPUProfileStatus, target *v1.Pod) decision {
	if !isRunning(target) {
		return s.waitForServer(status, target)
	}
	work, said := workOf(target), startOf(target)
	if work != nil {
		said = work.Since.Add(milliseconds(work.Counts[len(work.Counts)-1].At))
	}
	left := said.Add(workWait).Sub(s.now)
	if left <= 0 { // an agent that was restarted has lost its counts, and an agent whose annotation was removed reports none: a new pod solves both
		return s.lose(status, fmt.Sprintf("the agent of node %s has not said for %v how many kernels the training launches: it may be one of an earlier version, or its clock is wrong",
			target.Spec.NodeName, workWait), true)
	}
	var trial profiler.Trial
	var done bool
	var err error
	if work != nil {
		trial, done, err = s.plan.progress.Judge(seriesOf(work))
	}
	var failed *profiler.FailedError
	switch {
	case errors.As(err, &failed):
		return s.fail(status, failed.Reason)
	case done:
		t := status.Target
		return s.keep(status, target, api.ProfilePoint{
			SM: t.SM, Quota: t.Quota, Batch: status.Attempt.Batch, Confirmed: true,
			KernelsPerSecond: trial.Point.Throughput, SpreadPercent: math.Round(1000*trial.Confidence) / 10,
		}, nil)
	}
	s.set(status, metav1.ConditionFalse, api.ReasonMeasuring, "")
	made := s.write(status)
	made.after = min(trainingPause, left)
	return made
}

// startOf returns when the server or the client of a trial was started on its node; zero if that is not known.
func startOf(p *v1.Pod) time.Time {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == p.Spec.Containers[0].Name && c.State.Running != nil {
			return c.State.Running.StartedAt.Time
		}
	}
	return time.Time{}
}

// workOf returns what the agent of the node has counted for the program of a trial, and nil if it does not count.
func workOf(target *v1.Pod) *kube.Work {
	if target == nil {
		return nil
	}
	status, _, err := kube.EnforcementStatusOf(target)
	if err != nil {
		return nil // written by another version
	}
	for _, c := range status.Containers {
		if c.Name == target.Spec.Containers[0].Name && c.Work != nil && c.Work.Valid() {
			return c.Work
		}
	}
	return nil
}

// seriesOf returns an agent's counts as a series of package profiler.
func seriesOf(w *kube.Work) (s profiler.Series) {
	s.Changed = milliseconds(w.Changed)
	if w.First != nil {
		s.First = &profiler.Count{At: milliseconds(w.First.At), Launches: w.First.Launches}
	}
	for _, c := range w.Counts {
		s.Counts = append(s.Counts, profiler.Count{At: milliseconds(c.At), Launches: c.Launches})
	}
	return s
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// gpuTimeOf returns the percentage of time in which kernels of a program ran, averaged over its last counts between two times, or nil if there are fewer than
// two counts. A zero time is no bound.
func gpuTimeOf(target *v1.Pod, from, to time.Time) *int64 {
	w := workOf(target)
	if w == nil {
		return nil
	}
	var first, last *kube.WorkCount
	for at := range w.Counts {
		c := &w.Counts[at]
		if when := w.Since.Add(milliseconds(c.At)); when.Before(from) || !to.IsZero() && when.After(to) {
			continue
		}
		first, last = cmp.Or(first, c), c
	}
	if first == last {
		return nil
	}
	return new(min(100, (100*(last.Busy-first.Busy)+(last.At-first.At)/2)/(last.At-first.At)))
}
