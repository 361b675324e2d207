package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	objects "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/lab/dataset"
	simulator "github.com/gshare-dev/gshare/lab/serving"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	client "github.com/gshare-dev/gshare/serving/load"
	traffic "github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/published"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// table7 is a load of FluidFaaS's table 7, as in the simulator's worlds, for a cluster of two nodes with four GPUs each. Requests are dilated: they take, and
// are allowed to take, a multiple of the time, and arrive less frequently by the same factor, so that the processors can keep up. Seconds of the trace, in
// which replicas are added, are not dilated.
type table7 struct {
	size string  // size of the applications
	gain float64 // by how many points the hit rate with pipelines has to be higher
}

const (
	table7Geometry = "p2" // 3g.40gb and two 2g.20gb on each GPU
	table7Scale    = 8.0  // requests for each request of the trace, before dilation
	table7Dilation = 10
	table7Length   = 3 * time.Minute
	table7WarmUp   = 40 * time.Second // replicas start during this time, and the load is not counted
)

// instancesOf maps profiles to the sizes of the MIG instances of an A100-80GB.
var instancesOf = map[string]struct{ sms, memoryMiB int }{"1g.10gb": {14, 9728}, "2g.20gb": {28, 19968}, "3g.40gb": {42, 40192}, "4g.40gb": {56, 40192}}

// TestServingTable7 plays the medium, heavy and light loads of FluidFaaS's table 7 to functions that can only run whole, and to the same functions as
// pipelines, which gshare-controller splits according to the free MIG instances. The simulator plays the same requests. Without -full, only the heavy load is
// played.
func TestServingTable7(t *testing.T) {
	all := []table7{{size: "heavy", gain: 10}}
	if *full {
		all = append(all, table7{size: "medium", gain: 10}, table7{size: "light", gain: -1})
	}
	s, python := startTable7(t, all[0].input(t).MIG.GPUs)
	for _, load := range all {
		t.Run(load.size, func(t *testing.T) { load.run(t, s, python) })
	}
}

// startTable7 starts a cluster with serving, and two nodes with half of the GPUs each.
func startTable7(t *testing.T, gpus [][]string) (s *served, python string) {
	t.Helper()
	python, image := imageOfPython(t)
	image.Files["/app/application.py"] = "testdata/application.py"
	devices := "devices:\n"
	for n, profiles := range gpus[:len(gpus)/2] {
		devices += fmt.Sprintf("- {uuid: GPU-%d, model: A100, sms: 108, memoryMiB: 81920, mig: [", n)
		for i, p := range profiles {
			devices += fmt.Sprintf("\n  {uuid: %s%d-%d, profile: %s, sms: %d, memoryMiB: %d},", instanceOf(p), n, i, p, instancesOf[p].sms, instancesOf[p].memoryMiB)
		}
		devices += "]}\n"
	}
	images := []cluster.Image{servingImage(t, "gshare-controller"), servingImage(t, "gshare-gateway"), image}
	s = &served{agents: startWithAgents(t, cluster.Options{Images: images}, devices), ctx: t.Context()}
	s.http.Transport = &http.Transport{DialContext: s.Nodes[0].Machine.Dial}
	for _, node := range s.Nodes {
		s.of[node.Name].withoutDriver(s.ctx, t)
		s.waitInventory(s.ctx, t, node)
	}
	s.serve(t)
	var pods []*v1.Pod
	for _, app := range []string{"gshare-gateway", "gshare-controller"} {
		for _, p := range s.pods(t, "gshare-system", "app", app) {
			pods = append(pods, &p)
		}
	}
	s.realTime(t, pods, unix.SCHED_RR)
	t.Cleanup(func() { s.realTime(t, nil, unix.SCHED_NORMAL) })
	return s, python
}

// instanceOf returns the common prefix of the UUIDs of a profile's instances, such as MIG-2g-.
func instanceOf(profile string) string {
	size, _, _ := strings.Cut(profile, ".")
	return "MIG-" + size + "-"
}

// input returns the dilated world and load. It omits one feature of the simulator's world, that some requests do not need all components, which the servers
// here lack.
func (w *table7) input(t *testing.T) *simulator.Input {
	t.Helper()
	var spec simulator.Spec
	if err := yaml.UnmarshalStrict([]byte(read(t, "../../cmd/gshare-lab/internal/simulate/testdata/serving/"+w.size+".yaml")), &spec); err != nil {
		t.Fatal(err)
	}
	series, err := traffic.Read(published.Read(t, "serving/AzureLLMInferenceTrace_conv.csv"))
	if err != nil {
		t.Fatal(err)
	}
	replay := simulator.Replay{Series: series, Scale: table7Scale / table7Dilation, Until: table7Length, Seed: 1, Geometry: table7Geometry}
	in, err := spec.Build(replay, func(name string) (string, error) {
		return published.Read(t, strings.TrimPrefix(name, dataset.Prefix)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	dilated := func(d time.Duration) time.Duration { return table7Dilation * d }
	for f := range in.Functions {
		f := &in.Functions[f]
		f.SLO, f.Graph.Transfer = dilated(f.SLO), dilated(f.Graph.Transfer)
		for n := range f.Graph.Nodes {
			node := &f.Graph.Nodes[n]
			node.Chance = 0
			node.Name = strings.ReplaceAll(node.Name, "-", "_") // must be a Python identifier
			node.After = slices.Clone(node.After)
			for i := range node.After {
				node.After[i] = strings.ReplaceAll(node.After[i], "-", "_")
			}
			for kind, takes := range node.Times {
				node.Times[kind] = dilated(takes)
			}
		}
	}
	return in
}

// function returns the manifest of a function, with one stage for each component, or a single stage if it can only run whole.
func (w *table7) function(t *testing.T, f *simulator.Function, python string, whole bool) string {
	t.Helper()
	type component struct {
		Name    string             `json:"name"`
		Bytes   share.Bytes        `json:"bytes"`
		Seconds map[string]float64 `json:"seconds"`
	}
	var components []component
	var stages []api.Stage
	for _, n := range f.Graph.Nodes {
		c := component{Name: n.Name, Bytes: n.Memory, Seconds: map[string]float64{}}
		stage := api.Stage{Name: n.Name, DependsOn: n.After, Memory: quantity(n.Memory)}
		for _, kind := range slices.Sorted(maps.Keys(n.Times)) {
			c.Seconds[instanceOf(kind)] = n.Times[kind].Seconds()
			stage.Times = append(stage.Times, api.StageTime{Profile: kind, Time: api.Duration(n.Times[kind].String())})
		}
		components, stages = append(components, c), append(stages, stage)
	}
	all := f.Graph.Whole()
	slowest := time.Duration(0) // on an instance that holds all components
	one := api.Stage{Name: "all", Memory: quantity(all.Memory)}
	for _, kind := range slices.Sorted(maps.Keys(all.Times)) {
		one.Times = append(one.Times, api.StageTime{Profile: kind, Time: api.Duration(all.Times[kind].String())})
		if memory, known := instancesOf[kind]; known && all.Memory <= share.Bytes(memory.memoryMiB)*share.MiB {
			slowest = max(slowest, all.Times[kind])
		}
	}
	if whole {
		stages = []api.Stage{one}
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return fmt.Sprintf(`apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %s}
spec:
  protocol: OIP
  slo: {latency: %v}
  access: {namespaces: ["*"]}
  scaling: {requestsPerSecond: %.3f, minReplicas: 1, maxReplicas: 8, window: 10s}
  template:
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: server
        image: %s
        imagePullPolicy: Never
        command: [%s, -m, gshare, serve, "/app/application.py:Application"]
        resources: {requests: {cpu: 100m}} # without, whatever else runs on this machine comes first
        env:
        - {name: PYTHONPATH, value: /app}
        - {name: PYTHONDONTWRITEBYTECODE, value: "1"}
        - {name: LD_LIBRARY_PATH, value: /usr/lib/fake}
        - {name: FAKE_CUDA_MEMORY, value: "85899345920"}
        - {name: TRANSFER, value: "%v"}
        - {name: COMPONENTS, value: %s}
  pipeline: {transfer: %v, stages: %s}
`, f.Name, f.SLO, 1/slowest.Seconds(), pythonImage, python, f.Graph.Transfer.Seconds(), strconv.Quote(text(components)), f.Graph.Transfer, text(stages))
}

func quantity(b share.Bytes) api.Quantity { return api.Quantity(fmt.Sprintf("%dMi", b/share.MiB)) }

// run plays the load to functions that run whole, to pipelines, and in the simulator.
func (w *table7) run(t *testing.T, s *served, python string) {
	in := w.input(t)
	counts := make([]int, len(in.Functions))
	for _, a := range in.Arrivals {
		counts[a.Function]++
	}
	t.Logf("%s, %s, 2 nodes of %d GPUs, dilated by %d: %v requests in %v", w.size, table7Geometry, len(in.MIG.GPUs)/2, table7Dilation, counts, table7Length)
	whole := w.play(t, s, in, python, true)
	cut := w.play(t, s, in, python, false)
	if t.Failed() {
		return
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n%s\tHIT %%\tWHOLE\tIN PARTS\tSTART\n", strings.ToUpper(w.size))
	for n, p := range []*table7Played{whole, cut} {
		fmt.Fprintf(table, "%s\t%.2f\t%d\t%d\t%.1f s\n", []string{"monolithic", "pipelined"}[n], p.hit(), p.whole, p.parts, p.start.Seconds())
	}
	for _, policy := range []string{"monolithic", "pipelined", "gshare"} {
		start := cut.start
		if policy == "monolithic" {
			start = whole.start
		}
		for f := range in.Functions {
			in.Functions[f].LoadCold, in.Functions[f].LoadWarm = start, min(in.Functions[f].LoadWarm, start)
		}
		r, err := simulator.Run(s.ctx, in, policy)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(table, "%s, simulated\t%.2f\t\t\t%.1f s\n", policy, 100-r.ViolationPercent(), start.Seconds())
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
	if got := cut.hit() - whole.hit(); got < w.gain {
		t.Errorf("pipelines hit %.2f points more often, want %.2f", got, w.gain)
	}
	if cut.parts == 0 && w.gain > 0 {
		t.Error("no replica was in parts")
	}
}

// table7Played is the result of playing a load.
type table7Played struct {
	requests, inTime int
	whole, parts     int           // ready replicas at the end, on one instance and on several
	start            time.Duration // time for a replica to start once it has a node
}

func (p *table7Played) hit() float64 { return 100 * float64(p.inTime) / float64(max(p.requests, 1)) }

// fitsWhole reports whether all components of a function fit on an instance with one of these profiles.
func fitsWhole(f *simulator.Function, profiles []string) bool {
	all := f.Graph.Whole()
	return slices.ContainsFunc(profiles, func(p string) bool {
		return all.Times[p] > 0 && all.Memory <= share.Bytes(instancesOf[p].memoryMiB)*share.MiB
	})
}

// startInRealTime makes the replicas of functions start in the real-time scheduling class until stop is called, so that a start takes as long as on an
// otherwise idle machine.
func (s *served) startInRealTime(t *testing.T) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			list := &v1.PodList{}
			if err := s.objects.List(s.ctx, list, objects.InNamespace("default"), objects.HasLabels{api.LabelFunction}); err != nil {
				continue // the test itself notices
			}
			for n := range list.Items {
				if _, ready := api.Address(&list.Items[n]); !ready && list.Items[n].Spec.NodeName != "" {
					_ = setClasses(pidsOf(t, &list.Items[n]), unix.SCHED_RR) // some may just have ended
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

// became returns when a condition of a pod last changed.
func became(pod *v1.Pod, condition v1.PodConditionType) (at time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == condition {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// play plays the load to functions that can only run whole, or that may be split.
func (w *table7) play(t *testing.T, s *served, in *simulator.Input, python string, whole bool) *table7Played {
	t.Helper()
	defer s.startInRealTime(t)()
	var names []string
	for f := range in.Functions {
		s.write(t, w.function(t, &in.Functions[f], python, whole))
		names = append(names, in.Functions[f].Name)
	}
	body := []byte(`{"inputs": [{"name": "row", "shape": [1], "datatype": "FP32", "data": [0]}]}`)
	senders := make([]client.Sender, len(names))
	for n, name := range names {
		c := s.newClients(t, name)
		c.path, c.body = "/v2/models/application/infer", string(body)
		if !whole || fitsWhole(&in.Functions[n], in.MIG.GPUs[0]) { // for other functions there is no instance, and all their requests are refused
			s.wait(t, "ready: "+name, func() bool { return s.readyFor(t, name) >= 1 })
			s.wait(t, "answers: "+name, func() bool { return c.request() == nil })
		}
		sender := s.sender(t, name).(*client.HTTP)
		sender.URL, sender.Body = "http://gateway"+c.path, body
		senders[n] = sender
	}
	stop := s.watch(t, names...)
	results := make([]*client.Result, len(names))
	var wait sync.WaitGroup
	for n := range names {
		wait.Go(func() {
			plan := client.Plan{Length: table7Length, WarmUp: table7WarmUp, SLO: in.Functions[n].SLO, Schedule: func(yield func(time.Duration) bool) {
				for _, a := range in.Arrivals {
					if int(a.Function) == n && !yield(a.At) {
						return
					}
				}
			}}
			var err error
			if results[n], err = client.Run(s.ctx, plan, senders[n], nil); err != nil {
				t.Errorf("%s: %v", names[n], err)
			}
		})
	}
	wait.Wait()
	seen := stop()
	if t.Failed() {
		t.FailNow()
	}
	p := &table7Played{}
	var starts []time.Duration
	for n, name := range names {
		r, placed := results[n], []string{}
		for _, pod := range s.pods(t, "default", api.LabelFunction, name) {
			if _, ready := api.Address(&pod); !ready {
				continue
			}
			starts = append(starts, became(&pod, v1.PodReady).Sub(became(&pod, v1.PodScheduled)))
			on := s.slicesOf(t, &pod)
			if placed = append(placed, strings.Join(on, "+")); len(on) > 1 {
				p.parts++
			} else {
				p.whole++
			}
		}
		p.requests, p.inTime = p.requests+r.Scheduled, p.inTime+r.SLO.InTime
		t.Logf("%s: %d of %d in time (%v), failures %v, p50 %.0f ms, p99 %.0f ms, lateness of the client p99 %.1f ms; replicas %s; on %v", name, r.SLO.InTime,
			r.Scheduled, in.Functions[n].SLO, r.Failures, r.Latency.P50, r.Latency.P99, r.Lateness.P99, seen[name].times(), placed)
	}
	p.start = mean(starts)
	for _, name := range names {
		s.kubectl(t, "delete", "gpufunction", name)
	}
	s.wait(t, "no replicas", func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return len(s.pods(t, "default", api.LabelFunction, name)) > 0 })
	})
	for _, node := range s.Nodes {
		s.waitGrants(s.ctx, t, node, 0)
	}
	return p
}
