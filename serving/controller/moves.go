package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/pipeline"
)

// moves has replicas that are cut over several MIG instances move to a single one that is free, as pipeline.Migrations has it: their parts leave instances
// that others can use, and no tensors go between them. The fleet carries moves out, one of a function at a time. What is under way is in the cluster: the
// annotation api.AnnotationMovesFrom of the new pod, and what says of any pod that it is Ready or to end.
type moves struct {
	fleet    *fleet.Fleet
	pods     *Pods
	recorder events.EventRecorder
	log      *slog.Logger
	time     prometheus.Observer // of the looks for replicas to move; may be nil
	atOnce   int                 // the greatest number of moves of all functions at the same time

	mu    sync.Mutex
	again map[gateway.FunctionName]pause
}

// pause is when a function whose move was abandoned is looked at again.
type pause struct {
	length time.Duration
	until  time.Time
}

const (
	movesPeriod = 10 * time.Second // a replica loads its model to move, beside which this is little
	// movesAtOnce bounds what moves take from others while they go on: each holds the instances of two replicas, and reads a model.
	movesAtOnce = 4
	// Between tries of a function: a replica that cannot start on one instance costs its load each time.
	movesPauseMin = time.Minute
	movesPauseMax = time.Hour
)

// Run looks for replicas to move until ctx ends.
func (m *moves) Run(ctx context.Context) {
	ticker := time.NewTicker(movesPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := m.look(ctx); err != nil && ctx.Err() == nil {
				m.log.Warn("failed to look for replicas to move", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look begins those moves for which there are instances. While a pod of a move has no node yet it begins none: the instance that the pod is about to get
// still looks free.
func (m *moves) look(ctx context.Context) error {
	defer observe(m.time, time.Now())
	movable, moving := m.fleet.Movable()
	left := m.atOnce - len(moving)
	if left <= 0 || slices.ContainsFunc(moving, func(name string) bool { return !m.isPlaced(ctx, name) }) {
		return nil
	}
	found, stages := m.candidates(ctx, movable)
	if len(found) == 0 {
		return nil
	}
	nodes, kinds, err := cutter{m.pods.client, m.pods.onNodes}.fragments(ctx, stages)
	if err != nil {
		return err
	}
	var free []pipeline.Slice
	for _, n := range nodes {
		free = append(free, n.free...)
	}
	var running []pipeline.RunningInstance
	for at, c := range found {
		one, err := c.running(at, kinds)
		if err != nil {
			m.log.Debug("replica cannot be moved", "replica", c.Instance, "error", err)
			continue
		}
		running = append(running, one)
	}
	proposed, err := pipeline.Migrations(running, free)
	if err != nil {
		return err
	}
	for _, p := range proposed {
		if left > 0 && m.fleet.Move(found[p.Instance].Instance, p.To.Slices[0][0].Kind.Name) {
			left--
		}
	}
	return nil
}

// isPlaced reports whether the pod of a replica has a node, or there is none that will get one.
func (m *moves) isPlaced(ctx context.Context, replica string) bool {
	key, found := m.pods.keyOf(replica)
	if !found {
		return false // it is being created
	}
	pod := &v1.Pod{}
	return m.pods.client.Get(ctx, key, pod) == nil && pod.Spec.NodeName != ""
}

// candidate is a replica with a pod that is cut.
type candidate struct {
	fleet.Movable
	layout pipeline.Layout // its slices are profiles
}

// candidates returns the replicas that are cut and whose functions are not to be left alone for now. It also returns the stages of all of them, as one
// function.
func (m *moves) candidates(ctx context.Context, movable []fleet.Movable) (found []candidate, stages pipeline.Function) {
	for _, r := range movable {
		if r.Function.Spec.Pipeline == nil || m.pauses(gateway.FunctionName{Namespace: r.Function.Namespace, Name: r.Function.Name}) {
			continue
		}
		key, has := m.pods.keyOf(r.Instance)
		pod := &v1.Pod{}
		if !has || m.pods.client.Get(ctx, key, pod) != nil {
			continue
		}
		if layout, cut := layoutOf(pod); cut {
			found = append(found, candidate{r, layout})
			stages.Nodes = append(stages.Nodes, pipelineOf(r.Function).Nodes...)
		}
	}
	return found, stages
}

// running returns the replica as the rules know it, of kinds those on which its function was measured.
func (c *candidate) running(id int, kinds []pipeline.Kind) (pipeline.RunningInstance, error) {
	function := pipelineOf(c.Function)
	measured := slices.DeleteFunc(slices.Clone(kinds), func(k pipeline.Kind) bool {
		return !slices.ContainsFunc(function.Nodes, func(n pipeline.Node) bool { return n.Times[k.Name] > 0 })
	})
	demand := pipeline.Demand{SLO: c.Function.Spec.SLO.Latency.Value(), Rate: min(c.Rate, pipeline.MaxRate)}
	return pipeline.NewRunning(id, function, measured, c.layout, demand)
}

// pauses reports whether moves of a function are not to be tried now.
func (m *moves) pauses(f gateway.FunctionName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.again[f].until)
}

// note records a step of a move as an event of the function. After an abandoned one the function is left alone for a while.
func (m *moves) note(f *api.GPUFunction, s fleet.MoveStep) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s.Kind {
	case fleet.Moving:
		m.recorder.Eventf(f, nil, v1.EventTypeNormal, eventMoving, "Move",
			"Replica %s is on several MIG instances, and replica %s starts in its place on one of %s that is free", s.From, s.To, s.Profile)
	case fleet.Moved:
		m.recorder.Eventf(f, nil, v1.EventTypeNormal, eventMoved, "Move", "Replica %s is ready on one MIG instance, and replica %s ends after its requests", s.To, s.From)
		delete(m.again, s.Function)
	case fleet.Abandoned:
		if m.again == nil {
			m.again = map[gateway.FunctionName]pause{}
		}
		length := min(max(2*m.again[s.Function].length, movesPauseMin), movesPauseMax)
		m.again[s.Function] = pause{length, time.Now().Add(length)}
		m.recorder.Eventf(f, nil, v1.EventTypeWarning, eventMoveAbandoned, "Move", "%s",
			shortened(fmt.Sprintf("Replica %s stays on several MIG instances, as replica %s on one has failed; the next try is in %v at the earliest: %s", s.From, s.To, length, s.Why), maxNote))
	}
}
