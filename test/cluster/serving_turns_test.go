package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turnFunction has one replica, which takes turns with others and then holds 60 of a GPU's 80 GiB.
const turnFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %s}
spec:
  slo: {latency: 60s}
  idempotent: true
  protocol: OIP
  access: {namespaces: ["*"]}
  resources: {share: {sm: 100, quota: 100, memory: 60Gi}}
  scaling: {minReplicas: 1, maxReplicas: 1, requestsPerSecond: 10, window: 2s}
  template:
    metadata: {annotations: {gshare.dev/isolation: swap}}
    spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms, --weights, 64Mi]}]}
`

// takeTurns is a configuration with which pods of class swap may use 80 GiB of host memory beyond the memory of each GPU, and keep 64 MiB of GPU memory while
// they are parked.
const takeTurns = "  swap: {hostMemoryMiB: 81920, keptMemoryMiB: 64}\n"

// TestServingTurns: two functions that do not fit on a GPU together share one. They answer all requests in turn, and never hold more memory than the GPU has,
// whichever component is killed.
func TestServingTurns(t *testing.T) {
	s := startServing(t)
	for _, node := range s.Nodes {
		s.configure(t, node, takeTurns)
	}
	watch := s.watchMemory(t)
	names := []string{"first", "second"}
	began := time.Now()
	for _, name := range names {
		s.write(t, fmt.Sprintf(turnFunction, name))
	}
	var started []v1.Pod
	s.wait(t, "both have started", func() bool { started = s.startedTurns(t, names); return len(started) == 2 })
	var slices []string
	for _, p := range started {
		slices = append(slices, p.Spec.NodeName+"/"+s.slicesOf(t, &p)[0])
	}
	t.Logf("both have started on %v after %.1f s", slices, time.Since(began).Seconds())
	if slices[0] != slices[1] {
		t.Errorf("they are on %v", slices)
	}
	node := s.nodeOf(t, slices[0])
	for _, part := range []struct {
		name string
		kill func(*testing.T) (restart func())
	}{
		{"turns", func(*testing.T) func() { return func() {} }},
		{"agent killed", func(t *testing.T) func() {
			s.of[node.Name].Kill()
			return func() {
				if err := s.of[node.Name].Restart(s.ctx); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"controller killed", s.killLeader},
	} {
		t.Run(part.name, func(t *testing.T) {
			before := s.seqs(t, names)
			ctx, stop := context.WithTimeout(s.ctx, 25*time.Second)
			defer stop()
			began := time.Now()
			var all []*clients
			for _, name := range names {
				c := s.newClients(t, name)
				all = append(all, c)
				c.running.Go(func() { c.send(ctx, 4) })
			}
			time.Sleep(8 * time.Second)
			part.kill(t)()
			for _, c := range all {
				sent, failed := c.wait()
				if len(failed) > 0 {
					t.Errorf("%d of %d requests to %s failed, such as %v", len(failed), sent, c.function, failed[0])
				}
				t.Logf("%d requests to %s are answered after %.1f s", sent, c.function, time.Since(began).Seconds())
			}
			for at, seq := range s.seqs(t, names) {
				if seq <= before[at] {
					t.Errorf("%s has had no turn", names[at])
				}
				t.Logf("%s: %d changes of its residency", names[at], seq-before[at])
			}
		})
	}
	if most := share.Bytes(watch.Load()); most > 60<<30+64*share.MiB || most < 60<<30 {
		t.Errorf("%d bytes of a GPU were granted at once", most)
	}
	for _, name := range names {
		s.kubectl(t, "delete", "gpufunction", name)
	}
	s.wait(t, "no pods", func() bool { return len(s.startedTurns(t, names)) == 0 })
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
}

// configure adds lines to the configuration of a node's agent, and restarts the agent.
func (s *served) configure(t *testing.T, node *cluster.Node, text string) {
	t.Helper()
	name := filepath.Join(s.Dir, node.Name+"-node.yaml")
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	s.of[node.Name].Kill()
	if err := s.of[node.Name].Restart(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.waitNode(s.ctx, t, node, func(n *v1.Node) bool {
		inv, present, err := kube.InventoryOf(n)
		return present && err == nil && len(inv.Slices) > 0 && inv.Slices[0].Swap != nil
	})
}

// startedTurns returns the pods of the functions that have already had a turn.
func (s *served) startedTurns(t *testing.T, names []string) (found []v1.Pod) {
	t.Helper()
	for _, name := range names {
		for _, p := range s.pods(t, "default", api.LabelFunction, name) {
			_, r, err := kube.ResidencyOf(&p)
			if err != nil {
				t.Fatal(err)
			}
			if r.Level > residency.Cold { // readiness does not matter, since the server may be parked
				found = append(found, p)
			}
		}
	}
	return found
}

// seqs returns how often the residency of each function's pod has been changed.
func (s *served) seqs(t *testing.T, names []string) (all []int64) {
	t.Helper()
	for _, name := range names {
		seq := int64(0)
		for _, p := range s.pods(t, "default", api.LabelFunction, name) {
			if w, _, err := kube.ResidencyOf(&p); err == nil {
				seq = max(seq, w.Seq)
			}
		}
		all = append(all, seq)
	}
	return all
}

func (s *served) nodeOf(t *testing.T, slice string) *cluster.Node {
	t.Helper()
	for _, n := range s.Nodes {
		if strings.HasPrefix(slice, n.Name+"/") {
			return n
		}
	}
	t.Fatalf("no node of %s", slice)
	return nil
}

// watchMemory continuously reads how much memory of a GPU the agents have granted. most is the largest amount so far.
func (s *served) watchMemory(t *testing.T) (most *atomic.Int64) {
	most = &atomic.Int64{}
	ctx, stop := context.WithCancel(s.ctx)
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, n := range s.Nodes {
				text, err := s.of[n.Name].get(ctx, "/metrics")
				if err != nil {
					continue // the agent is being killed
				}
				for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
					if line, is := strings.CutPrefix(lines.Text(), "gshare_node_slice_memory_promised_bytes{"); is {
						_, number, _ := strings.Cut(line, "} ")
						bytes, err := strconv.ParseFloat(number, 64)
						if err != nil {
							t.Error(err)
							return
						}
						most.Store(max(most.Load(), int64(bytes)))
					}
				}
			}
			time.Sleep(20 * time.Millisecond) // between polls
		}
	}()
	return most
}
