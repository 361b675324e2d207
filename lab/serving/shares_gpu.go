package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/serving/residency"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// gpu is a whole GPU that instances share. A running batch has the SMs that its instance requests. SMs left over are divided equally
// among instances below their limit whenever a batch starts or ends; Dilu divides them every 5 ms by its tokens.
type gpu struct {
	clock     *clock
	meter     *usageMeter
	residents []*instance // instances that hold memory here
	running   []*instance
	since     time.Duration // of the grants
}

// usageMeter accumulates the resource use of all GPUs.
type usageMeter struct {
	until  time.Duration // time after which nothing is counted
	gpu    float64       // seconds of whole GPUs
	memory float64       // GB-seconds
	used   float64       // seconds of whole GPUs during which SMs worked
}

// meterUsage charges the GPU's use since its last call to the usage meter and advances the running batches. It charges the reserved
// SMs, or the used ones if those are more: a burst on idle SMs is free only as far as others have paid for them.
func (g *gpu) meterUsage() {
	now := g.clock.now
	if from, to := min(g.since, g.meter.until), min(now, g.meter.until); to > from {
		var reserved, used share.PerMille
		var memory share.Bytes
		for _, i := range g.residents {
			reserved += i.reservedSMs()
			memory += i.configuration.Share.Memory
		}
		for _, i := range g.running {
			used += i.sm
		}
		seconds := (to - from).Seconds()
		g.meter.gpu += seconds * float64(max(reserved, used)) / float64(share.Whole)
		g.meter.used += seconds * float64(used) / float64(share.Whole)
		g.meter.memory += seconds * float64(memory) / 1e9
	}
	for _, i := range g.running {
		i.done += float64(now-g.since) / float64(i.takes)
	}
	g.since = now
}

func (g *gpu) add(i *instance) {
	g.meterUsage()
	g.residents = append(g.residents, i)
}

func (g *gpu) remove(i *instance) {
	g.meterUsage()
	g.residents = slices.DeleteFunc(g.residents, func(o *instance) bool { return o == i })
}

// startBatch runs a batch on an idle instance.
func (g *gpu) startBatch(i *instance, batch []int32) {
	g.meterUsage()
	i.batch, i.began, i.done, i.sm = batch, g.clock.now, 0, 0
	g.running = append(g.running, i)
	g.divideSMs()
}

func (g *gpu) endBatch(i *instance) []int32 {
	g.meterUsage()
	g.running = slices.DeleteFunc(g.running, func(o *instance) bool { return o == i })
	batch := i.batch
	i.batch = nil
	g.divideSMs()
	return batch
}

// divideSMs divides the SMs among the running batches and schedules their ends.
func (g *gpu) divideSMs() {
	left, below := share.Whole, 0
	var grants, limits [64]share.PerMille
	for n, i := range g.running {
		grants[n] = i.reservedSMs()
		limits[n] = max(grants[n], i.function.surface.FewestSMs(len(i.batch), i.configuration.Share.SMLimit, i.target))
		left -= grants[n]
		if grants[n] < limits[n] {
			below++
		}
	}
	for left > 0 && below > 0 {
		part := max(left/share.PerMille(below), 1)
		below = 0
		for n := range g.running {
			more := min(part, left, limits[n]-grants[n])
			grants[n], left = grants[n]+more, left-more
			if grants[n] < limits[n] {
				below++
			}
		}
	}
	for n, i := range g.running {
		if grants[n] != i.sm {
			g.scheduleEnd(i, grants[n])
		}
	}
}

// availableSMs returns the SMs, at most the share's limit, that a batch of the instance could have now. For a nil instance it returns
// limit.
func (i *instance) availableSMs(limit share.PerMille) share.PerMille {
	if i == nil {
		return limit
	}
	left := share.Whole
	for _, other := range i.gpu.running {
		left -= other.sm
	}
	return max(i.reservedSMs(), min(left, i.configuration.Share.SMLimit))
}

func (g *gpu) scheduleEnd(i *instance, sm share.PerMille) {
	i.sm = sm
	i.takes = i.function.surface.Latency(len(i.batch), sm)
	i.planned++
	plan := i.planned
	g.clock.after(time.Duration((1-i.done)*float64(i.takes)), func() {
		if i.planned == plan && i.batch != nil {
			i.function.ended(i)
		}
	})
}

// instance is one copy of a function on a GPU share. Its fields are the simulated state of that copy, which only the event loop changes.
type instance struct {
	id            scaling.ID
	function      *sharedFunction
	gpu           *gpu
	at            int // index of the GPU
	configuration scaling.Configuration
	most          int // maximum number of requests in a batch

	ready     bool // loaded, so it can run batches
	leaving   bool // runs no more batches
	residency scaling.Residency
	since     time.Duration // start of the present residency
	lastUsed  time.Duration
	use       residency.Meter

	batch   []int32 // running batch
	began   time.Duration
	done    float64 // fraction of the batch that is done
	sm      share.PerMille
	takes   time.Duration // time of the whole batch with sm SMs
	target  time.Duration // time that the batch may take; it gets no more SMs than this requires
	planned int           // number of scheduled ends of batches, to ignore outdated ones
}

// reservedSMs returns the SMs that are reserved for the instance, or minSM if it reserves none.
func (i *instance) reservedSMs() share.PerMille {
	if i.residency == scaling.Shared {
		return minSM
	}
	return i.configuration.Share.SMRequest
}

// minSM is the least number of SMs, in per mille, of an instance that reserves none, so that it makes progress.
const minSM share.PerMille = 10

// podOf returns a pod that requests the share, for package packing to place.
func (w *shareSimulation) podOf(s share.Share) *packing.Pod {
	terms := share.Terms{Isolation: share.MPS, Slice: share.WholeGPU, Enforcement: share.Strict, Priority: share.SLO}
	if w.policy.elastic {
		terms.Isolation = share.Elastic
	}
	return &packing.Pod{Request: share.Request{Terms: terms, Containers: []share.Container{{VGPUs: 1, Share: s}}}}
}

// occupiedNode returns the GPUs as a node of package packing on which all instances except the given one reserve their shares.
func (w *shareSimulation) occupiedNode(without *instance) *packing.Node {
	if without == nil && !w.changed {
		return w.node
	}
	node := packing.NewNode("node", w.slices, 0, 0)
	for at, g := range w.gpus {
		for _, i := range g.residents {
			if i == without {
				continue
			}
			pod := w.podOf(i.reservation())
			node.Take(w.packer.Rules.Model, pod, packing.Plan{{{Slice: at, Class: pod.Request.Terms.Isolation}}})
		}
	}
	if without == nil {
		w.node, w.changed = node, false
	}
	return node
}

// reservation returns the share that the instance reserves on its GPU.
func (i *instance) reservation() share.Share {
	s := i.configuration.Share
	s.SMRequest = i.reservedSMs()
	return s
}

// findGPU returns the index of a GPU with capacity for a share. It evicts idle instances that reserve no SMs, the least recently used
// first, until the share fits, and returns false if it never does.
func (w *shareSimulation) findGPU(s share.Share) (gpu int, ok bool) {
	for {
		plan, _, refusal := w.packer.Place(w.occupiedNode(nil), w.podOf(s))
		if refusal == packing.Admitted {
			return plan[0][0].Slice, true
		}
		if !w.evictLeastRecentlyUsed() {
			return 0, false
		}
	}
}

// evictLeastRecentlyUsed moves the least recently used idle instance without reserved SMs to host memory. It reports whether there was
// one.
func (w *shareSimulation) evictLeastRecentlyUsed() bool {
	var all []*instance
	var have []pool.Instance
	for _, g := range w.gpus {
		for _, i := range g.residents {
			all, have = append(all, i), append(have, i.standing())
		}
	}
	at, ok := pool.LeastRecentlyUsed(have)
	if !ok {
		return false
	}
	all[at].function.moveToHost(all[at])
	return true
}

// canReserveSMs reports whether an instance that holds only memory can reserve SMs again on its GPU.
func (w *shareSimulation) canReserveSMs(i *instance) bool {
	pod := w.podOf(i.configuration.Share)
	plan := packing.Plan{{{Slice: i.at, Class: pod.Request.Terms.Isolation}}}
	return w.packer.Admits(w.occupiedNode(i), pod, plan)
}
