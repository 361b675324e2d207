// Package trial holds gshare-lab demo, replay and bench: loads on a real control plane with simulated nodes.
package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	dto "github.com/prometheus/client_model/go"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
)

// Commands returns the commands replay, demo and bench of gshare-lab, which start a control plane.
func Commands() []*cobra.Command {
	return []*cobra.Command{replayCommand(), demoCommand(), benchCommand()}
}

// sandbox is a running etcd and API server, with a client and a tracker of the pods' scheduling.
type sandbox struct {
	*controlplane.ControlPlane
	client  kubernetes.Interface
	tracker *bulk.Tracker
	console *cli.Console
}

// startSandbox starts etcd and kube-apiserver. The caller must call Stop.
func startSandbox(ctx context.Context, c *cli.Console) (*sandbox, error) {
	c.Step("Starting etcd and kube-apiserver")
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	s := &sandbox{ControlPlane: plane, console: c}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return s, nil
}

func (s *sandbox) connect(ctx context.Context) (err error) {
	if s.client, err = bulk.NewClient(s.Config(access.Admin)); err != nil {
		return err
	}
	s.tracker, err = bulk.NewTracker(ctx, s.client)
	return err
}

// addNodes creates the nodes and shows a progress bar.
func (s *sandbox) addNodes(ctx context.Context, nodes []*v1.Node) error {
	bar := s.console.Bar("Creating nodes", len(nodes))
	defer bar.End()
	return bulk.CreateNodes(ctx, s.client, nodes, bar.Add)
}

// runPods creates the pods as fast as possible and returns when each is bound or reported unschedulable and the scheduler's queues are
// empty.
func (s *sandbox) runPods(ctx context.Context, pods []*v1.Pod, scheduler *controlplane.Process) error {
	before := s.tracker.Progress().Seen
	bar := s.console.Bar("Scheduling pods", len(pods))
	defer bar.End()
	created := make(chan error, 1)
	go func() { created <- bulk.CreatePods(ctx, s.client, pods) }()
	err := s.tracker.Wait(ctx, func(p bulk.Progress) bool {
		bar.Set(p.Bound+p.Refused-before, fmt.Sprintf("%d bound, %d unschedulable", p.Bound, p.Refused))
		return p.Seen == before+len(pods) && p.Settled()
	})
	if err = errors.Join(err, <-created); err != nil {
		return err
	}
	return s.waitIdle(ctx, scheduler)
}

// waitIdle blocks until the scheduler's active and backoff queues are empty and every pod is bound or reported unschedulable.
func (s *sandbox) waitIdle(ctx context.Context, scheduler *controlplane.Process) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		metrics, err := scrape(ctx, scheduler)
		if err != nil {
			return err
		}
		if metrics.sum("scheduler_pending_pods", "queue", "active") == 0 && metrics.sum("scheduler_pending_pods", "queue", "backoff") == 0 &&
			metrics.sum("scheduler_goroutines", "operation", "binding") == 0 && s.tracker.Progress().Settled() {
			return nil
		}
		select {
		case <-tick.C:
		case <-scheduler.Done():
			return fmt.Errorf("scheduler ended: %w", scheduler.Err())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// metrics holds the Prometheus metrics of a scheduler by name.
type metrics map[string]*dto.MetricFamily

func scrape(ctx context.Context, p *controlplane.Process) (metrics, error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(string(text)))
}

// sum returns the sum of a metric's samples that have the label value, or of all samples if the label is empty. For a histogram, it sums
// the observed values.
func (m metrics) sum(name, label, value string) float64 {
	var total float64
	for _, sample := range m[name].GetMetric() {
		if label == "" || hasLabel(sample, label, value) {
			total += sample.GetGauge().GetValue() + sample.GetCounter().GetValue() + sample.GetHistogram().GetSampleSum()
		}
	}
	return total
}

// count returns the number of observations of a histogram.
func (m metrics) count(name string) float64 {
	var total float64
	for _, sample := range m[name].GetMetric() {
		total += float64(sample.GetHistogram().GetSampleCount())
	}
	return total
}

func hasLabel(m *dto.Metric, name, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name && l.GetValue() == value {
			return true
		}
	}
	return false
}
