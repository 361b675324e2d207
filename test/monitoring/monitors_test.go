package monitoring

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

// podMonitor holds the fields of a PodMonitor that the test reads.
type podMonitor struct {
	Spec struct {
		Selector            struct{ MatchLabels map[string]string }
		PodMetricsEndpoints []struct{ Port string }
	}
}

// TestMonitors: the monitors scrape every container of gshare that serves metrics. The Prometheus operator keeps only ports that
// a container declares, by name or by number: an undeclared port is not scraped, and no alert fires.
func TestMonitors(t *testing.T) {
	declared := map[string][]string{}
	for _, o := range append(objects(t, "manifests/base"), objects(t, "manifests/serving")...) {
		if kind := o.GetKind(); kind != "DaemonSet" && kind != "Deployment" {
			continue
		}
		var workload struct {
			Spec struct{ Template v1.PodTemplateSpec }
		}
		convert(t, o, &workload)
		app := workload.Spec.Template.Labels["app"]
		for _, c := range workload.Spec.Template.Spec.Containers {
			for _, p := range c.Ports {
				if slices.Contains(notMetrics, p.Name) {
					continue
				}
				declared[app] = append(declared[app], fmt.Sprint(c.Name, " ", p.Name, " ", p.ContainerPort))
			}
		}
	}
	want := map[string][]string{
		"gshare-node":      {"agent metrics 9477", "proxy proxy-metrics 9478"},
		"gshare-scheduler": {"scheduler https 10259"},

		"gshare-controller": {"controller metrics 9090"},
		"gshare-gateway":    {"gateway metrics 9090"},
	}
	ports := map[string][]string{}
	for _, o := range objects(t, "manifests/monitoring") {
		if o.GetKind() != "PodMonitor" {
			continue
		}
		var m podMonitor
		convert(t, o, &m)
		app := m.Spec.Selector.MatchLabels["app"]
		for _, e := range m.Spec.PodMetricsEndpoints {
			ports[app] = append(ports[app], e.Port)
		}
	}
	for app, all := range want {
		if !slices.Equal(declared[app], all) {
			t.Errorf("%s declares %q, want %q", app, declared[app], all)
		}
		for _, line := range all {
			var container, port string
			if _, err := fmt.Sscan(line, &container, &port); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(ports[app], port) {
				t.Errorf("%s: port %s of container %s is not scraped: %q", app, port, container, ports[app])
			}
		}
		if len(ports[app]) != len(all) {
			t.Errorf("%s: %q are scraped, want %q", app, ports[app], all)
		}
	}
}

// notMetrics are the names of ports that serve no metrics: those for requests, for other gateways, for reports to the controller,
// for KEDA's queries, and for probes.
var notMetrics = []string{"http", "peers", "report", "keda", "health"}

func objects(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	all, err := manifest.Build(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func convert(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
