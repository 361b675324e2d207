package measure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/doctor"
)

// Agents holds the pods of a cluster's running node agents.
type Agents struct {
	connection *cluster.Connection
	pods       []v1.Pod
}

// FindAgents returns the running node agents: that of one node, or all if node is empty. It returns an error if none is running.
func FindAgents(ctx context.Context, c *cluster.Connection, node string) (*Agents, error) {
	list, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: doctor.AgentPods})
	if err != nil {
		return nil, fmt.Errorf("list node agents: %w", err)
	}
	a := &Agents{connection: c}
	for _, pod := range list.Items {
		if pod.Status.Phase == v1.PodRunning && (node == "" || pod.Spec.NodeName == node) {
			a.pods = append(a.pods, pod)
		}
	}
	if len(a.pods) == 0 {
		return nil, fmt.Errorf("no running node agent in %s (see gshare doctor)", cluster.Namespace)
	}
	return a, nil
}

// Sample holds the metrics of all node agents at one time.
type Sample struct {
	At     time.Time
	Shares []Share
	Errors []string // one for each agent whose metrics could not be read, with the name of its node
}

// maxConcurrent is the largest number of agents that are queried at the same time.
const maxConcurrent = 16

// Read reads the current metrics of every agent.
func (a *Agents) Read(ctx context.Context) Sample {
	var mu sync.Mutex // guards sample
	sample := Sample{At: time.Now()}
	var group sync.WaitGroup
	semaphore := make(chan struct{}, maxConcurrent)
	for i := range a.pods {
		semaphore <- struct{}{}
		group.Go(func() {
			defer func() { <-semaphore }()
			shares, err := a.readAgent(ctx, &a.pods[i])
			mu.Lock()
			defer mu.Unlock()
			sample.Shares = append(sample.Shares, shares...)
			if err != nil {
				sample.Errors = append(sample.Errors, a.pods[i].Spec.NodeName+": "+err.Error())
			}
		})
	}
	group.Wait()
	slices.SortFunc(sample.Shares, func(x, y Share) int { return strings.Compare(x.key(), y.key()) })
	slices.Sort(sample.Errors)
	return sample
}

// readAgent reads the metrics of one agent.
func (a *Agents) readAgent(ctx context.Context, pod *v1.Pod) ([]Share, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := Get(ctx, a.connection, pod, metricsPort(pod), "/metrics")
	if err != nil {
		return nil, err
	}
	return Parse(pod.Spec.NodeName, text)
}

// metricsPort returns the port of an agent's readiness probe, on which the agent also serves its metrics.
func metricsPort(pod *v1.Pod) int {
	const defaultPort = 9477
	for _, c := range pod.Spec.Containers {
		if p := c.ReadinessProbe; p != nil && p.HTTPGet != nil && p.HTTPGet.Port.IntValue() > 0 {
			return p.HTTPGet.Port.IntValue()
		}
	}
	return defaultPort
}
