// Package scheduler_test runs upstream's scheduler_perf with gshare's plugins: the upstream harness, workloads in its
// format, and the real plugin registry.
package scheduler_test

import (
	"fmt"
	"os"
	"testing"

	_ "k8s.io/component-base/logs/json/register" // the harness offers JSON logs
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/gshare-dev/gshare/plugins"
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func registry() frameworkruntime.Registry {
	out := frameworkruntime.Registry{}
	for name, factory := range plugins.All() {
		out[name] = factory
		perf.PluginNames = append(perf.PluginNames, name)
	}
	return out
}

// BenchmarkPerfScheduling needs an etcd binary on PATH; hack/bench-perf.sh builds one.
func BenchmarkPerfScheduling(b *testing.B) {
	perf.RunBenchmarkPerfScheduling(b, "config.yaml", "gshare", registry())
}
