package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const fragments = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, mig: [
  {uuid: MIG-a, profile: 1g.10gb, sms: 14, memoryMiB: 9728}, {uuid: MIG-large, profile: 3g.40gb, sms: 42, memoryMiB: 40192}]}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920, mig: [{uuid: MIG-b, profile: 1g.10gb, sms: 14, memoryMiB: 9728}]}
`

// rows is python/examples/rows_stages.py as a function. Its three components have 3 GiB of weights each, so that a small instance holds two of them. The image
// has the fake driver.
const rows = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: rows, namespace: default}
spec:
  protocol: OIP
  slo: {latency: 20s}
  access: {namespaces: ["*"]}
  scaling: {requestsPerSecond: 40, minReplicas: 1, maxReplicas: 1}
  template:
    spec:
      containers:
      - name: server
        image: ` + pythonImage + `
        imagePullPolicy: Never
        command: [PYTHON, -m, gshare, serve, "/app/rows_stages.py:Rows"]
        env:
        - {name: PYTHONPATH, value: /app}
        - {name: LD_LIBRARY_PATH, value: /usr/lib/fake}
        - {name: FAKE_CUDA_MEMORY, value: "85899345920"}
        - {name: ROWS_MIB, value: "3072"}
  pipeline:
    transfer: 1ms
    stages:
    - {name: denoise, memory: 3500Mi, times: [{profile: 1g.10gb, time: 40ms}, {profile: 3g.40gb, time: 15ms}]}
    - {name: segment, dependsOn: [denoise], memory: 3500Mi, times: [{profile: 1g.10gb, time: 18ms}, {profile: 3g.40gb, time: 7ms}]}
    - {name: classify, dependsOn: [denoise, segment], memory: 3500Mi, times: [{profile: 1g.10gb, time: 55ms}, {profile: 3g.40gb, time: 20ms}]}
`

const pythonImage = "docker.io/local/python:1"

// TestServingPipeline: if no free MIG instance can hold the replica of a function, the replica is split into two containers. Each gets an instance of its own,
// on different GPUs, which the agent grants to that container only; together they answer requests. Once the large instance is free, the replica moves there
// under load without losing a request, even if the controller is killed while the replica on the large instance starts.
func TestServingPipeline(t *testing.T) {
	python, image := imageOfPython(t)
	s := startFragments(t, image)
	function := strings.Replace(rows, "PYTHON", python, 1)
	t.Run("moves", func(t *testing.T) { s.moves(t, function, func(*testing.T) {}) })
	if t.Failed() {
		return
	}
	left := s.readyRows(t)
	s.kubectl(t, "delete", "gpufunction", "rows")
	for _, p := range left {
		if err := s.waitEnded(s.ctx, p.Name); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("controller killed", func(t *testing.T) { s.moves(t, function, func(t *testing.T) { s.killLeader(t)() }) })
}

// moves creates the function while the large instance is taken, and then frees that instance under load. It calls meanwhile as the replica on the large
// instance starts.
func (s *served) moves(t *testing.T, function string, meanwhile func(*testing.T)) {
	holder := cluster.Pod("holder", "sleep", "inf")
	holder.Spec.Containers[0].Resources.Limits = limits(100, 100, 40192)
	holder.Annotations = map[string]string{kube.AnnotationContainerSlice + "main": "3g.40gb"}
	kube.Complete(holder)
	s.create(s.ctx, t, holder)
	if _, err := s.WaitPod(s.ctx, "holder", cluster.IsRunning); err != nil {
		t.Fatal(err)
	}
	s.write(t, function)
	s.wait(t, "a replica is ready", func() bool { return len(s.readyRows(t)) == 1 })
	first := s.readyRows(t)[0]
	if got, want := s.slicesOf(t, &first), []string{"MIG-a", "MIG-b"}; !slices.Equal(got, want) {
		t.Fatalf("the parts of %s are on %v, want %v", first.Name, got, want)
	}
	if sidecars := first.Spec.InitContainers; len(sidecars) != 1 || sidecars[0].Name != "gshare-stage-1" {
		t.Errorf("sidecars %+v", sidecars)
	}
	s.waitBooks(s.ctx, t, s.Nodes[0])
	c := s.newClients(t, "rows")
	c.path = "/v2/models/rows/infer"
	c.body = `{"inputs": [{"name": "row", "shape": [8], "datatype": "FP32", "data": [0, 0, 1, 1, 1, 0, 0, 0]}]}`
	s.wait(t, "a gateway answers", func() bool { return c.request() == nil })
	if ran := c.ranOn(t); len(ran) != 3 || !slices.Equal(slices.Compact(slices.Sorted(slices.Values(ran))), []string{"MIG-a", "MIG-b"}) {
		t.Errorf("the components ran on %v: %s", ran, c.last)
	}

	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	c.running.Go(func() { c.send(ctx, 10) })
	time.Sleep(3 * time.Second)
	s.leave(s.ctx, t, []*v1.Pod{holder})
	freed := time.Now()
	pods := func() []v1.Pod { return s.pods(t, "default", api.LabelFunction, "rows") }
	starts := s.wait(t, "a replica starts on the large instance", func() bool { return len(pods()) == 2 })
	meanwhile(t)
	s.wait(t, "the replica has moved", func() bool {
		now := pods()
		if len(now) > 2 {
			t.Errorf("%d pods", len(now))
		}
		return len(now) == 1 && now[0].UID != first.UID
	})
	moved := time.Since(freed)
	if err := s.waitEnded(s.ctx, first.Name); err != nil {
		t.Error(err)
	}
	time.Sleep(3 * time.Second)
	stop()
	sent, failed := c.wait()
	t.Logf("%d requests, %d failed; the pod of the large instance is there %.1f s after the other one was deleted, and alone after %.1f s", sent, len(failed), starts.Seconds(), moved.Seconds())
	if len(failed) > 0 || sent < 60 {
		t.Errorf("%d of %d requests failed, such as %v", len(failed), sent, firstOf(failed))
	}
	second := s.readyRows(t)
	if len(second) != 1 || !slices.Equal(s.slicesOf(t, &second[0]), []string{"MIG-large"}) || len(second[0].Spec.InitContainers) > 0 {
		t.Fatalf("replicas %+v", second)
	}
	if second[0].Annotations[api.AnnotationMovesFrom] != first.Labels[api.LabelInstance] {
		t.Errorf("it moves from %q, want %q", second[0].Annotations[api.AnnotationMovesFrom], first.Labels[api.LabelInstance])
	}
	if err := c.request(); err != nil {
		t.Error(err)
	}
	if ran := c.ranOn(t); !slices.Equal(ran, []string{"MIG-large", "MIG-large", "MIG-large"}) {
		t.Errorf("the components ran on %v: %s", ran, c.last)
	}
	reasons := s.kubectl(t, "get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}")
	for _, want := range []string{"Moving", "Moved"} {
		if !slices.Contains(strings.Fields(reasons), want) {
			t.Errorf("no event %s among %s", want, reasons)
		}
	}
	s.waitBooks(s.ctx, t, s.Nodes[0])
}

// startFragments starts a cluster with serving, and one node with MIG instances and an image.
func startFragments(t *testing.T, image cluster.Image) *served {
	t.Helper()
	images := []cluster.Image{servingImage(t, "gshare-controller"), servingImage(t, "gshare-gateway"), image}
	s := &served{agents: startWithAgents(t, cluster.Options{Nodes: 1, Images: images}, fragments)}
	var stop context.CancelFunc
	s.ctx, stop = context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(stop)
	s.http.Transport = &http.Transport{DialContext: s.Nodes[0].Machine.Dial}
	s.of[s.Nodes[0].Name].withoutDriver(s.ctx, t)
	s.waitInventory(s.ctx, t, s.Nodes[0])
	s.serve(t)
	return s
}

// readyRows returns the replicas of the function that are Ready.
func (s *served) readyRows(t *testing.T) (found []v1.Pod) {
	t.Helper()
	for _, p := range s.pods(t, "default", api.LabelFunction, "rows") {
		if _, ready := api.Address(&p); ready {
			found = append(found, p)
		}
	}
	return found
}

// ranOn returns the device that each component ran on, according to the last answer.
func (c *clients) ranOn(t *testing.T) []string {
	t.Helper()
	var answer struct {
		Outputs []struct {
			Name string
			Data []any
		}
	}
	if err := json.Unmarshal([]byte(c.last), &answer); err != nil {
		t.Fatalf("%v: %s", err, c.last)
	}
	var ran []string
	for _, o := range answer.Outputs {
		for _, v := range o.Data {
			if o.Name == "ran" {
				ran = append(ran, fmt.Sprint(v))
			} else if o.Name == "brightness" && fmt.Sprint(v) != "83.33" {
				t.Errorf("the brightness is %v", v)
			}
		}
	}
	return ran
}

// slicesOf returns the slices of a pod, sorted.
func (s *served) slicesOf(t *testing.T, pod *v1.Pod) []string {
	t.Helper()
	placed, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range placed.Containers {
		for _, v := range c.VGPUs {
			found = append(found, v.Slice)
		}
	}
	slices.Sort(found)
	return found
}

// imageOfPython returns an image with this machine's Python, the package gshare, an example and the fake driver. It also returns the path of the interpreter.
func imageOfPython(t *testing.T) (program string, image cluster.Image) {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		t.Skipf("python3 does not run: %v", err)
	}
	paths := strings.Fields(string(out))
	if len(paths) != 2 {
		t.Fatalf("python3 is at %q", out)
	}
	program = paths[0]
	files := withLibraries(t, program, program)
	// What the server does not need is larger than everything else.
	leave := []string{"__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests", "tkinter", "turtledemo"}
	add := func(folder, to string) {
		if err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() && slices.ContainsFunc(leave, func(pattern string) bool { matches, _ := filepath.Match(pattern, e.Name()); return matches }) {
				return fs.SkipDir
			}
			within, err := filepath.Rel(folder, path)
			if err != nil {
				return err
			}
			switch filepath.Ext(path) {
			case ".so":
				maps.Copy(files, withLibraries(t, filepath.Join(to, within), path))
			case ".py":
				files[filepath.Join(to, within)] = path
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	add(paths[1], paths[1])
	add("../../python/gshare", "/app/gshare")
	files["/app/rows_stages.py"] = "../../python/examples/rows_stages.py"
	files["/usr/lib/fake/libcuda.so.1"] = filepath.Join(buildDriver(t), "libcuda.so.1")
	return program, cluster.Image{Name: pythonImage, Files: files}
}
