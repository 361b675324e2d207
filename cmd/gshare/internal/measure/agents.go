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

// Agents are the node agents of a cluster.
type Agents struct {
	connection *cluster.Connection
	pods       []v1.Pod
}

// FindAgents lists the agents that run, or the one of a node; an empty node is all.
func FindAgents(ctx context.Context, c *cluster.Connection, node string) (*Agents, error) {
	list, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: doctor.AgentPods})
	if err != nil {
		return nil, fmt.Errorf("list the node agents: %w", err)
	}
	a := &Agents{connection: c}
	for _, pod := range list.Items {
		if pod.Status.Phase == v1.PodRunning && (node == "" || pod.Spec.NodeName == node) {
			a.pods = append(a.pods, pod)
		}
	}
	if len(a.pods) == 0 {
		return nil, fmt.Errorf("no node agent runs in %s (see gshare doctor)", cluster.Namespace)
	}
	return a, nil
}

// Look is what all agents say at one moment, and which said nothing.
type Look struct {
	At     time.Time
	Shares []Share
	Errors []string
}

// atOnce bounds the agents that are asked at the same time.
const atOnce = 16

// Look asks every agent.
func (a *Agents) Look(ctx context.Context) Look {
	var mu sync.Mutex // guards look
	look := Look{At: time.Now()}
	var group sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range a.pods {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			shares, err := a.ask(ctx, &a.pods[i])
			mu.Lock()
			defer mu.Unlock()
			look.Shares = append(look.Shares, shares...)
			if err != nil {
				look.Errors = append(look.Errors, a.pods[i].Spec.NodeName+": "+err.Error())
			}
		})
	}
	group.Wait()
	slices.SortFunc(look.Shares, func(x, y Share) int { return strings.Compare(x.key(), y.key()) })
	slices.Sort(look.Errors)
	return look
}

func (a *Agents) ask(ctx context.Context, pod *v1.Pod) ([]Share, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := Get(ctx, a.connection, pod, portOf(pod), "/metrics")
	if err != nil {
		return nil, err
	}
	return Parse(pod.Spec.NodeName, text)
}

// portOf is where an agent's probe asks, which is where its metrics are.
func portOf(pod *v1.Pod) int {
	const usual = 9477
	for _, c := range pod.Spec.Containers {
		if p := c.ReadinessProbe; p != nil && p.HTTPGet != nil && p.HTTPGet.Port.IntValue() > 0 {
			return p.HTTPGet.Port.IntValue()
		}
	}
	return usual
}
