package serving

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// shareSimulation simulates functions whose instances share whole GPUs, under one policy.
type shareSimulation struct {
	clock     *clock
	record    *record
	policy    sharePolicy
	meter     usageMeter
	packer    packing.Packer
	slices    []packing.Slice
	node      *packing.Node // all GPUs, with the shares of the instances on them
	gpus      []*gpu
	functions []*sharedFunction

	changed bool // since node was last computed
}

// sharePolicy holds the settings in which the policies on shared GPUs differ.
type sharePolicy struct {
	scaling scaling.Policy
	elastic bool // limits are twice the request; otherwise they equal it
	pool    pool.Policy
	urgent  bool // requests are queued by deadline and refused if too late, and batches are as large as the deadline allows
}

// headroom is the fraction of the SLO, in per mille, that is reserved for queueing. Dilu reserves half.
const headroom share.PerMille = 500

func newShareSimulation(in *Input, c *clock, r *record, p sharePolicy) (*shareSimulation, error) {
	if err := in.validateShares(); err != nil {
		return nil, err
	}
	w := &shareSimulation{
		clock: c, record: r, policy: p, meter: usageMeter{until: in.Until}, changed: true,
		packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.DiluWeights},
	}
	for i := range in.GPUs {
		w.gpus = append(w.gpus, &gpu{clock: c, meter: &w.meter})
		w.slices = append(w.slices, packing.Slice{
			ID: packing.SliceID(fmt.Sprint(i)), Device: fmt.Sprint(i), Memory: in.GPUMemory, Healthy: true,
			Classes: []share.Isolation{share.MPS, share.Elastic}, MixTenants: true, MaxShares: 48, // below the maximum number of MPS clients
		})
	}
	for i := range in.Functions {
		pool, err := w.newFunction(&in.Functions[i])
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("functions[%d]", i), err)
		}
		w.functions = append(w.functions, pool)
	}
	return w, nil
}

func (w *shareSimulation) newFunction(f *Function) (*sharedFunction, error) {
	choices, err := scaling.SLO{Latency: f.SLO, Headroom: headroom}.Choices(f.Points)
	if err != nil {
		return nil, err
	}
	for i := range choices {
		choices[i].Share = w.shareOf(choices[i].Share, f.Memory)
	}
	surface, err := profile.NewSurface(f.Points)
	if err != nil {
		return nil, err
	}
	p := &sharedFunction{sim: w, function: f, surface: surface, queue: &fifoQueue{}}
	if p.scaler, err = scaling.New(w.policy.scaling, choices); err != nil {
		return nil, err
	}
	if !w.policy.urgent {
		return p, nil
	}
	efficient, err := scaling.MostEfficient(choices)
	if err != nil {
		return nil, err
	}
	p.queue, err = p.newDeadlineQueue(efficient.Share.SMLimit)
	return p, err
}

func (w *shareSimulation) shareOf(s share.Share, memory share.Bytes) share.Share {
	s.Memory = memory
	if w.policy.elastic {
		s.SMLimit = min(2*s.SMRequest, share.Whole)
	}
	return s
}

// newDeadlineQueue returns a queue of package batching for the function. It predicts latencies for the SMs that are available: those
// of the share's limit, or those that are free on the GPU of the instance that takes the next batch. A request is refused only if it
// would be late even then.
func (p *sharedFunction) newDeadlineQueue(limit share.PerMille) (queue, error) {
	p.limit, p.available = limit, limit
	q, err := batching.New(batching.Config{
		MaxBatch: p.surface.LargestBatch(limit, p.maxExecution()), Latency: func(batch int) time.Duration { return p.surface.Latency(batch, p.available) },
	})
	return deadlineQueue{q}, err
}

// maxExecution returns how long a batch of the function may take: its SLO less the headroom for queueing.
func (p *sharedFunction) maxExecution() time.Duration {
	return p.function.SLO * time.Duration(share.Whole-headroom) / time.Duration(share.Whole)
}

func (w *shareSimulation) arrive(request int32) {
	w.functions[w.record.arrivals[request].Function].arrive(request)
}

// everySecond runs the autoscaler of every function with the number of requests of the last second.
func (w *shareSimulation) everySecond() error {
	for _, p := range w.functions {
		if err := p.scale(); err != nil {
			return err
		}
	}
	return nil
}

func (w *shareSimulation) finish(prices *priceList, r *Result) {
	for _, g := range w.gpus {
		g.meterUsage()
	}
	r.GPUSeconds, r.UsedSeconds, r.MemorySeconds = w.meter.gpu, w.meter.used, w.meter.memory
	r.Cost = prices.price(w.meter.gpu, w.meter.memory)
}
