package function

import (
	"bytes"
	"context"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/measure"
)

// GatewayPods is the label selector of the gateways.
const GatewayPods = "app=gshare-gateway"

// counters holds the counters of one function, summed over all gateways. Each gateway counts from its own start.
type counters struct {
	requests     float64
	refusals     map[string]float64
	took, queued float64 // seconds
}

// Watch returns what all gateways count for a function over the given time. The user needs permission to create pods/portforward in the
// gateways' namespace.
func Watch(ctx context.Context, c *cluster.Connection, namespace, name string, during time.Duration) (*Traffic, error) {
	list, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: GatewayPods})
	if err != nil {
		return nil, fmt.Errorf("list gateways: %w", err)
	}
	begin := time.Now()
	before, err := readAll(ctx, c, list.Items, namespace, name)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := readAll(ctx, c, list.Items, namespace, name)
	if err != nil {
		return nil, err
	}
	return between(before, after, time.Since(begin)), nil
}

func readAll(ctx context.Context, c *cluster.Connection, pods []v1.Pod, namespace, name string) (*counters, error) {
	sum := &counters{refusals: map[string]float64{}}
	read := 0
	for at := range pods {
		if pods[at].Status.Phase != v1.PodRunning {
			continue
		}
		text, err := measure.Get(ctx, c, &pods[at], metricsPort(&pods[at]), "/metrics")
		if err != nil {
			return nil, fmt.Errorf("metrics of gateway %s: %w", pods[at].Name, err)
		}
		if err := sum.add(text, namespace, name); err != nil {
			return nil, fmt.Errorf("metrics of gateway %s: %w", pods[at].Name, err)
		}
		read++
	}
	if read == 0 {
		return nil, fmt.Errorf("no running gateway in %s", cluster.Namespace)
	}
	return sum, nil
}

// metricsPort returns the container port with the name metrics in a gateway's pod.
func metricsPort(pod *v1.Pod) int {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "metrics" {
				return int(p.ContainerPort)
			}
		}
	}
	return 9090
}

// add adds the counters in metrics text.
func (c *counters) add(text []byte, namespace, name string) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	of := func(family string) (found []*dto.Metric) {
		for _, m := range families["gshare_gateway_"+family].GetMetric() {
			if label(m, "namespace") == namespace && label(m, "function") == name {
				found = append(found, m)
			}
		}
		return found
	}
	for _, m := range of("refusals_total") {
		c.refusals[label(m, "reason")] += m.GetCounter().GetValue()
	}
	for _, m := range of("request_duration_seconds") {
		c.requests += float64(m.GetHistogram().GetSampleCount())
		c.took += m.GetHistogram().GetSampleSum()
	}
	for _, m := range of("queue_duration_seconds") {
		c.queued += m.GetHistogram().GetSampleSum()
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// between returns the traffic between two readings. A gateway that has restarted counts from zero again, which shows as fewer requests.
func between(before, after *counters, during time.Duration) *Traffic {
	t := &Traffic{During: during, Requests: int(after.requests - before.requests), Refusals: map[string]int{}}
	if t.Requests <= 0 {
		t.Requests = 0
		return t
	}
	for reason, n := range after.refusals {
		if grown := n - before.refusals[reason]; grown > 0 {
			t.Refusals[reason] = int(grown)
		}
	}
	mean := func(sum float64) time.Duration {
		return time.Duration(sum / float64(t.Requests) * float64(time.Second))
	}
	t.Took, t.Queued = mean(after.took-before.took), mean(after.queued-before.queued)
	return t
}
