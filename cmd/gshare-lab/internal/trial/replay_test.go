package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/test/controlplane"
)

// tinyTrace writes a cluster of 14 GPUs and 26 pods: 14 parts of a GPU, 2 pods of two GPUs, 6 plain ones, and 4 that can
// never run for want of their model. The others fit in whatever order they arrive, as the pods of a replay are created
// several at a time: three parts fit on any GPU, so they take 5 GPUs, and of 12 T4s a machine has two left.
func tinyTrace(t *testing.T) (nodes, pods string) {
	t.Helper()
	dir := t.TempDir()
	nodes, pods = filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "pods.csv")
	n := "sn,cpu_milli,memory_mib,gpu,model\na,32000,65536,6,T4\nb,32000,65536,6,T4\nc,32000,65536,2,G3\nd,32000,65536,0,\n"
	p := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
	for i := range 14 {
		p += fmt.Sprintf("part-%d,1000,1024,1,%d,\n", i, 250+10*(i%5))
	}
	for i := range 2 {
		p += fmt.Sprintf("pair-%d,1000,1024,2,1000,T4\n", i)
	}
	for i := range 6 {
		p += fmt.Sprintf("plain-%d,1000,1024,0,0,\n", i)
	}
	for i := range 4 {
		p += fmt.Sprintf("rare-%d,1000,1024,1,500,A10|P100\n", i)
	}
	for file, text := range map[string]string{nodes: n, pods: p} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, pods
}

// The whole way: files in, a real control plane, the checker, JSON out; once for each profile.
func TestReplay(t *testing.T) {
	nodes, pods := tinyTrace(t)
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			var out bytes.Buffer
			args := []string{"replay", "--nodes", nodes, "--pods", pods, "--profile", profile, "--seed", "3", "--output", "json"}
			if err := execute(t.Context(), args, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			var got replayResult
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.Nodes != 4 || got.GPUs != 14 || got.Pods != 26 || got.Bound != 22 || got.Unschedulable != 4 || got.Violations != 0 ||
				got.GPUsUsed < 9 || got.AllocationPercent < 55 || got.PodsPerSecond <= 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := execute(t.Context(), []string{"demo", "--pods", "60"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"slot table", "violations       0", "pods             60"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// The negative control of every replay: stock kube-scheduler sees the same resources and binds the same pods, but places
// no share, and the checker says so of each.
func TestCheckerObjectsToStockScheduler(t *testing.T) {
	ctx := t.Context()
	s, err := startSandbox(ctx, cli.NewConsole())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	nodes, err := nodeObjects([]trace.Node{{Name: "n", MilliCPU: 32000, MemoryMiB: 65536, GPUs: 1, Model: "T4"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.addNodes(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	scheduler, err := s.StartScheduler(ctx, "stock", []byte(stockConfig), controlplane.SchedulerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := []trace.Pod{{Name: "a", GPUs: 1, MilliGPU: 500}, {Name: "b", GPUs: 1, MilliGPU: 400}}
	if err := s.runPods(ctx, podObjects(pods, v1.DefaultSchedulerName, trace.Devices([]trace.Node{{GPUs: 1, Model: "T4"}})), scheduler); err != nil {
		t.Fatal(err)
	}
	var result replayResult
	if err := s.audit(ctx, &result, pods); err != nil {
		t.Fatal(err)
	}
	if result.Bound != 2 || result.Violations < 2 || result.violationError() == nil {
		t.Errorf("%d bound, %d violations: %v", result.Bound, result.Violations, result.Details)
	}
}
