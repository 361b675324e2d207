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

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
)

// moves moves replicas that are cut over several MIG instances to a single free one, by the rules of pipeline.Migrations: their parts free instances
// that others can use, and no tensors have to pass between instances. The fleet carries the moves out, one per function at a time. The state of moves
// is in the cluster: the annotation api.AnnotationMovesFrom of the new pod, and what says of any pod that it is Ready or is to end.
type moves struct {
	fleet    *fleet.Fleet
	pods     *Pods
	recorder events.EventRecorder
	log      *slog.Logger
	time     prometheus.Observer // time of the searches for replicas to move; may be nil
	atOnce   int                 // most moves at the same time, of all functions

	mu    sync.Mutex
	again map[gateway.FunctionName]pause
}

// pause is how long, and until when, a function is left alone after its move was abandoned.
type pause struct {
	length time.Duration
	until  time.Time
}

const (
	movesPeriod = 10 * time.Second // short beside the time that a moved replica needs to load its model
	// movesAtOnce bounds what moves take away from others while they go on: each holds the MIG instances of two replicas and loads a model.
	movesAtOnce = 4
	// Between two tries of a function: each replica that cannot start on one instance has loaded its model in vain.
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

// look begins the moves for which there are free instances. It begins none while the pod of any move has no node yet: the instance that this pod is
// about to get still looks free.
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

// isPlaced reports whether the pod of a replica has a node, so that its instances are taken.
func (m *moves) isPlaced(ctx context.Context, replica string) bool {
	key, found := m.pods.keyOf(replica)
	if !found {
		return false // the pod is still to be created
	}
	pod := &v1.Pod{}
	return m.pods.client.Get(ctx, key, pod) == nil && pod.Spec.NodeName != ""
}

// candidate is a replica whose pod is cut.
type candidate struct {
	fleet.Movable
	layout pipeline.Layout // with profiles in place of slices
}

// candidates returns the replicas that are cut, except those of functions to be left alone for now. It also returns the stages of all of them as if
// they were one function.
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

// running returns the replica in the form of package pipeline. Only those kinds are considered on which its function was measured.
func (c *candidate) running(id int, kinds []pipeline.Kind) (pipeline.RunningInstance, error) {
	function := pipelineOf(c.Function)
	measured := slices.DeleteFunc(slices.Clone(kinds), func(k pipeline.Kind) bool {
		return !slices.ContainsFunc(function.Nodes, func(n pipeline.Node) bool { return n.Times[k.Name] > 0 })
	})
	demand := pipeline.Demand{SLO: c.Function.Spec.SLO.Latency.Value(), Rate: min(c.Rate, pipeline.MaxRate)}
	return pipeline.NewRunning(id, function, measured, c.layout, demand)
}

// pauses reports whether a function is to be left alone for now.
func (m *moves) pauses(f gateway.FunctionName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.again[f].until)
}

// note records a step of a move as an event of the function. After an abandoned move the function is left alone for a while.
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
