package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const twoInstances = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, mig: [
  {uuid: MIG-small, profile: 1g.10gb, sms: 14, memoryMiB: 9728}, {uuid: MIG-large, profile: 3g.40gb, sms: 42, memoryMiB: 40192}]}
`

// TestAgentStages: the containers of a pod request MIG instances of different profiles. Each sees only its own instance. If one container
// finds no instance, the pod gets none for the other container either.
func TestAgentStages(t *testing.T) {
	a := startWithAgents(t, cluster.Options{Nodes: 1}, twoInstances)
	ctx, node := testContext(t), a.Nodes[0]
	a.of[node.Name].withoutDriver(ctx, t)
	a.waitInventory(ctx, t, node)

	a.create(ctx, t, stages("half", 60, "3g.40gb", "2g.20gb"))
	if _, err := a.WaitPod(ctx, "half", func(p *v1.Pod) bool {
		return len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, "no slice of the requested kind")
	}); err != nil {
		t.Fatal(err)
	}
	a.waitGrants(ctx, t, node, 0)

	a.create(ctx, t, stages("stages", 60, "3g.40gb", "1g.10gb"))
	pod := a.runsAsPlaced(ctx, t, "stages") // each container sees only what it was placed on
	placed, _, err := kube.PlacementOf(pod)
	if err != nil || len(placed.Containers) != 2 {
		t.Fatalf("placement %+v, %v", placed, err)
	}
	for c, want := range []string{"MIG-large", "MIG-small"} {
		if got := placed.Containers[c].VGPUs[0].Slice; got != want {
			t.Errorf("container %s is on %s, want %s", placed.Containers[c].Name, got, want)
		}
	}
	a.waitBooks(ctx, t, node)
	a.leave(ctx, t, []*v1.Pod{pod})
	a.waitGrants(ctx, t, node, 0)
}

// stages returns a pod with the containers main and second, each of which requests a part of a slice of the given kind.
func stages(name string, sm int64, main, second string) *v1.Pod {
	pod := cluster.Pod(name, "sleep", "inf")
	also := pod.Spec.Containers[0]
	also.Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, also)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Limits = limits(sm, 100, 4096)
	}
	pod.Annotations = map[string]string{kube.AnnotationContainerSlice + "main": main, kube.AnnotationContainerSlice + "second": second}
	kube.Complete(pod)
	return pod
}

// withoutDriver restarts the agent without a driver description, since this machine has no device nodes of MIG instances.
func (a *agent) withoutDriver(ctx context.Context, t *testing.T) {
	t.Helper()
	name := a.program.Args[1]
	before := read(t, name)
	text := strings.Replace(before, "  driver: "+filepath.Join(filepath.Dir(name), "driver.yaml")+"\n", "", 1)
	if text == before {
		t.Fatalf("no driver in %s", before)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	a.start(ctx, t)
}
