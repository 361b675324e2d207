package shapes

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Draw returns n random pods of a family. Equal seeds return equal pods.
func Draw(f Family, n int, seed uint64) []Pod {
	r := rand.New(rand.NewPCG(seed, 1))
	pods := make([]Pod, n)
	for i := range pods {
		pods[i] = f(r)
	}
	return pods
}

// Area returns the SM-time that all pods request together, in GPUs.
func Area(pods []Pod) float64 {
	sum := share.Area(0)
	for _, p := range pods {
		sum += p.Area()
	}
	return float64(sum) / float64(share.WholeArea)
}

// Fill places the pods in their order, with their indices as IDs, and returns the number of used GPUs. It returns an error if a pod fits no
// GPU, so the fleet should have a GPU for each pod.
func Fill(ctx context.Context, f *Fleet, pods []Pod) (gpus int, err error) {
	for id, p := range pods {
		g, ok := f.Place(id, p)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if !ok {
			return 0, fmt.Errorf("no GPU holds pod %d", id)
		}
		gpus = max(gpus, g+1)
	}
	return gpus, nil
}

// ChurnResult is the outcome of Churn, measured from the arrival of the first third of the pods to that of the last pod.
type ChurnResult struct {
	Density float64 // mean SM-time in use, as a fraction of the fleet's
	Refused float64 // fraction of the offered SM-time that found no room
}

// Churn simulates pods that arrive as a Poisson process and stay for exponential lifetimes, such that the offered SM-time is load times
// that of the fleet. A pod that does not fit is dropped.
func Churn(ctx context.Context, f *Fleet, pods []Pod, load float64, seed uint64) (ChurnResult, error) {
	c := churn{fleet: f, random: rand.New(rand.NewPCG(seed, 2))}
	gap := Area(pods) / float64(len(pods)) / (load * float64(f.config.GPUs))
	for id, p := range pods {
		if ctx.Err() != nil {
			return ChurnResult{}, ctx.Err()
		}
		if id == len(pods)/3 {
			c.restart()
		}
		c.advance(c.random.ExpFloat64() * gap)
		c.arrive(id, p, c.random.ExpFloat64())
	}
	return ChurnResult{Density: c.used / (c.now - c.since) / float64(f.config.GPUs), Refused: c.refused / c.offered}, nil
}

// churn is the state of a run of Churn. The unit of time is the mean lifetime of the SM-time of one GPU.
type churn struct {
	fleet            *Fleet
	random           *rand.Rand
	leaving          departures
	now, since       float64
	busy             float64 // in use now
	used             float64 // integral of busy over time
	offered, refused float64
}

// restart discards the SM-time measured so far and begins a new measurement.
func (c *churn) restart() { c.since, c.used, c.offered, c.refused = c.now, 0, 0, 0 }

// advance advances the simulated time by d and removes the pods whose lifetime ends.
func (c *churn) advance(d float64) {
	end := c.now + d
	for len(c.leaving) > 0 && c.leaving[0].at <= end {
		next := heap.Pop(&c.leaving).(departure)
		c.used += c.busy * (next.at - c.now)
		c.now = next.at
		c.busy -= next.area
		c.fleet.Remove(next.id)
	}
	c.used += c.busy * (end - c.now)
	c.now = end
}

func (c *churn) arrive(id int, p Pod, lifetime float64) {
	area := Area([]Pod{p})
	c.offered += area
	if _, ok := c.fleet.Place(id, p); !ok {
		c.refused += area
		return
	}
	c.busy += area
	heap.Push(&c.leaving, departure{at: c.now + lifetime, id: id, area: area})
}

// departure is the end of a pod's lifetime.
type departure struct {
	at   float64
	id   int
	area float64
}

// departures is a heap of departures, the earliest first.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }

func (d *departures) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}
