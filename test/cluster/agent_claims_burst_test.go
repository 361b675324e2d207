package cluster_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/cluster"
)

// mostClaimTime limits the duration of a burst of pods with claims, relative to the same burst through the device plugin.
const mostClaimTime = 2

// TestAgentClaimsBurst starts many pods at once on one node and compares the durations: through the device plugin and gshare-scheduler, and through
// resource claims and the same program's stock profile. Each uses four GPUs.
func TestAgentClaimsBurst(t *testing.T) {
	a := startWithAgents(t, cluster.Options{Nodes: 1, SchedulerConfig: withStockProfile(t)}, eightGPUs)
	ctx := testContext(t)
	node := a.Nodes[0]
	a.of[node.Name].offerToClaims(ctx, t, "GPU-4", "GPU-5", "GPU-6", "GPU-7")
	a.waitDevices(ctx, t, "gpu-4", "gpu-5", "gpu-6", "gpu-7")
	a.deviceClass(ctx, t)
	a.template(ctx, t, "small", "6", "1Gi")

	var plugin, claims []cost
	for range 2 { // alternating, so that other work on the machine affects both
		plugin = append(plugin, a.burst(t, node, burst, func(pod *v1.Pod) *v1.Pod { return ask(pod, 12, 50, 1024) }))
		claims = append(claims, a.burst(t, node, burst, func(pod *v1.Pod) *v1.Pod { return claiming(pod, "small") }))
		a.waitNoClaims(testContext(t), t)
	}
	took := least(claims).time.Seconds() / least(plugin).time.Seconds()
	used := (claims[0].cpu + claims[1].cpu).Seconds() / (plugin[0].cpu + plugin[1].cpu).Seconds()
	t.Logf("%d pods: %+v by the device plugin, %+v by claims: x %.2f in time (the faster of each), x %.2f in processor time", burst, plugin, claims, took, used)
	if took > mostClaimTime {
		t.Errorf("a burst by claims takes x %.2f of one by the device plugin, at most %v", took, mostClaimTime)
	}
}

// withStockProfile returns gshare-scheduler's configuration with a profile without gshare's plugins.
func withStockProfile(t *testing.T) []byte {
	t.Helper()
	var config map[string]any
	if err := yaml.Unmarshal(manifests.SchedulerConfig, &config); err != nil {
		t.Fatal(err)
	}
	config["profiles"] = append(config["profiles"].([]any), map[string]any{"schedulerName": v1.DefaultSchedulerName})
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
