package serving

import (
	"errors"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/gshare-dev/gshare/lab/serving/residency"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/pipeline/routing"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// migFunction is one function on MIG instances, with its queue and its instances.
type migFunction struct {
	sim       *migSimulation
	function  *Function
	ranking   *pipeline.Ranking
	waiting   slackQueue
	instances []*migInstance
	whole     bool          // fits on a single slice of some kind of this node
	fastest   time.Duration // of one request on a shared slice; 0 if no slice is ever shared
	sharing   bool          // has an instance on the shared slices
	full      bool          // whether the last attempt to add an instance found no slices

	arrived int // requests arrived in this second
	recent  []scaling.Rate
	options []routing.Instance // scratch space of chooseInstance
}

func (w *migSimulation) newFunction(f *Function, kinds []pipeline.Kind) (*migFunction, error) {
	ranking, err := pipeline.Rank(*f.Graph, kinds)
	if err != nil {
		return nil, err
	}
	a := &migFunction{sim: w, function: f, ranking: ranking}
	a.waiting.record, a.waiting.refuses = w.record, w.policy.refuses
	whole := f.Graph.Whole()
	times := map[string]time.Duration{}
	for _, k := range kinds {
		if t := whole.Times[k.Name]; t > 0 && whole.Memory <= k.Memory {
			times[k.Name] = t
		}
	}
	if a.whole = len(times) > 0; a.whole && w.node != nil {
		a.fastest = slices.Min(slices.Collect(maps.Values(times)))
		return a, w.node.Register(residency.Function{
			Name: f.Name, Memory: whole.Memory, Times: times, LoadWarm: f.LoadWarm, LoadCold: f.LoadCold,
		})
	}
	return a, nil
}

// dispatch sends waiting requests, the most urgent first, to the instances that can take them now. The others stay queued.
func (a *migFunction) dispatch() {
	w := a.sim
	if fastest := a.fastestReady(); fastest > 0 {
		a.waiting.expire(w.clock.now, fastest)
	}
	for a.waiting.len() > 0 {
		at, ok := a.chooseInstance()
		if !ok {
			return
		}
		takes, idle := time.Duration(0), true
		if at < len(a.instances) {
			idle = a.instances[at].outstanding == 0
			takes = a.instances[at].assignment.Latency + max(0, a.instances[at].free-w.clock.now)
		}
		request, ok := a.waiting.pop(w.clock.now, takes, idle)
		if !ok {
			return
		}
		if at == len(a.instances) {
			a.submitToShared(request)
			continue
		}
		a.instances[at].take(request)
	}
}

func (a *migFunction) fastestReady() time.Duration {
	least := time.Duration(0)
	for _, c := range a.instances {
		if c.ready && !c.leaving && (least == 0 || c.assignment.Latency < least) {
			least = c.assignment.Latency
		}
	}
	return least
}

// chooseInstance returns the index of the instance that package routing selects for the next request, and false if there is none. The
// instance on shared slices is the last option, and accepts only as many requests as it can run next, so that instances that become free
// still find requests in the queue.
func (a *migFunction) chooseInstance() (int, bool) {
	w := a.sim
	a.options = a.options[:0]
	for _, c := range a.instances {
		a.options = append(a.options, routing.Instance{
			ID: c.id, Residency: scaling.Hot, Draining: c.leaving || !c.ready, Latency: c.assignment.Latency + c.idleGPUPenalty(),
			Capacity: max(1, c.assignment.Outstanding(a.function.SLO)), Outstanding: c.outstanding,
		})
	}
	if w.node != nil && a.whole && (len(a.instances) == 0 || a.sharing || a.full) && w.node.Waiting(a.function.Name) < 1 {
		a.options = append(a.options, routing.Instance{ID: -1, Residency: scaling.Shared})
	}
	return routing.Choose(a.options)
}

// submitToShared sends a request to the function's instance on the shared slices.
func (a *migFunction) submitToShared(request int32) {
	w := a.sim
	a.sharing = true
	w.recordError(w.node.Enqueue(w.clock.now, residency.Request{ID: uint64(request), Function: a.function.Name, Deadline: w.record.deadline(request)}))
	w.startShared()
}

// slackQueue holds the requests of one function in the order of arrival, which is also that of their deadlines, because they have
// the same SLO. Overdue requests, which can no longer meet their SLO, run after all others or are refused.
type slackQueue struct {
	record  *record
	refuses bool
	alive   []int32
	overdue []int32
}

func (q *slackQueue) len() int { return len(q.alive) + len(q.overdue) }

// liveCount returns the number of requests that may still meet their SLO.
func (q *slackQueue) liveCount() int { return len(q.alive) }

func (q *slackQueue) add(request int32) { q.alive = append(q.alive, request) }

// putBack adds a request that arrived before others of the queue.
func (q *slackQueue) putBack(request int32) {
	at, _ := slices.BinarySearch(q.alive, request)
	q.alive = slices.Insert(q.alive, at, request)
}

// expire refuses or sets aside the requests that would be late even on the fastest instance.
func (q *slackQueue) expire(now, fastest time.Duration) {
	n := 0
	for n < len(q.alive) && q.record.deadline(q.alive[n]) < now+fastest {
		if q.refuses {
			q.record.refuse(q.alive[n])
		} else {
			q.overdue = append(q.overdue, q.alive[n])
		}
		n++
	}
	q.alive = q.alive[n:]
}

// pop removes and returns the request with the earliest deadline that an instance with the given execution time can meet. If there is
// none, an idle instance gets an overdue request. It returns false if no request is suitable; a faster instance may still meet the
// deadlines of the requests that wait.
func (q *slackQueue) pop(now, takes time.Duration, idle bool) (int32, bool) {
	at := sort.Search(len(q.alive), func(i int) bool { return q.record.deadline(q.alive[i]) >= now+takes })
	switch {
	case at == len(q.alive) && (len(q.overdue) == 0 || !idle):
		return 0, false
	case at == len(q.alive):
		request := q.overdue[0]
		q.overdue = q.overdue[1:]
		return request, true
	case at == 0:
		request := q.alive[0]
		q.alive = q.alive[1:]
		return request, true
	}
	request := q.alive[at]
	q.alive = slices.Delete(q.alive, at, at+1)
	return request, true
}

// recordRate appends the request rate of the last second to the load history of the function.
func (a *migFunction) recordRate() {
	a.recent = append(a.recent, scaling.Rate(a.arrived))
	if len(a.recent) > loadsKept {
		a.recent = a.recent[1:]
	}
	a.arrived = 0
}

// loadsKept is the length of the load history in seconds. loadSamples is how many of its latest samples the forecast uses.
const (
	loadsKept   = 60
	loadSamples = 10
)

// maxUtilisation is the utilisation of a function's instances above which another one is added.
const maxUtilisation = 0.9

// needsInstances reports whether the function has too few instances for the expected load.
func (a *migFunction) needsInstances() bool {
	return a.expectedLoad() > maxUtilisation*a.capacity(nil)
}

// canSpare reports whether the function's other instances suffice without the given one. While no function lacks slices, they must
// suffice for the peak load of the history.
func (a *migFunction) canSpare(without *migInstance) bool {
	load := a.expectedLoad()
	if !a.sim.scarce {
		load = float64(slices.Max(a.recent))
	}
	return load <= scaleInUtilisation*a.capacity(without)
}

// scaleInUtilisation is the highest utilisation that the remaining instances may have when an instance is removed. It is well below
// maxUtilisation, so that the instance is not added again at once.
const scaleInUtilisation = 0.6

// expectedLoad returns the expected load in requests a second, including the queued requests that can still meet their SLO.
func (a *migFunction) expectedLoad() float64 {
	return float64(scaling.MeanOrTrend(a.recent[max(0, len(a.recent)-loadSamples):])) + float64(a.waiting.liveCount())/loadSamples
}

// capacity returns the requests per second that the function's instances can serve, not counting the given one. For a function without
// instances it returns a value with which the function gets slices of its own at the same utilisation of a shared slice at which package
// residency promotes an instance (U10).
func (a *migFunction) capacity(without *migInstance) float64 {
	capacity := 0.0
	for _, c := range a.instances {
		if !c.leaving && c != without {
			capacity += c.assignment.Rate()
		}
	}
	if capacity == 0 && a.fastest > 0 {
		capacity = float64(thresholds.Up) / float64(share.Whole) / maxUtilisation / a.fastest.Seconds()
	}
	return capacity
}

// addInstance starts an instance on free slices. It returns false if none fit.
func (a *migFunction) addInstance() (bool, error) {
	w := a.sim
	demand := pipeline.Demand{SLO: a.function.SLO, Candidates: w.policy.candidates}
	assign := a.ranking.Monolithic
	if w.policy.pipelines {
		assign = a.ranking.Assign
	}
	found, err := assign(w.free, demand)
	for doesNotFit(err) && w.reclaimSharedSlice() {
		found, err = assign(w.free, demand)
	}
	if a.full = doesNotFit(err); a.full {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a.start(found, a.loadTime())
	return true, nil
}

// loadTime returns how long another instance of the function takes to load: LoadWarm if the model data is in host memory or on a shared
// slice, otherwise LoadCold. It counts the start as warm or cold in the result.
func (a *migFunction) loadTime() time.Duration {
	if a.sim.node != nil && a.sim.node.Residency(a.function.Name) != scaling.Cold {
		a.sim.record.result.WarmStarts++
		return a.function.LoadWarm
	}
	a.sim.record.result.ColdStarts++
	return a.function.LoadCold
}

func doesNotFit(err error) bool {
	return errors.Is(err, pipeline.ErrNoFit) || errors.Is(err, pipeline.ErrRate) || errors.Is(err, pipeline.ErrSLO)
}
