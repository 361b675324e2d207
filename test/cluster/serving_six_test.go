package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	simulator "github.com/gshare-dev/gshare/lab/serving"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	traffic "github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/test/cluster"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// halves is the list of simulated devices: one GPU that is split into two instances.
const halves = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, mig: [
  {uuid: MIG-a, profile: 3g.40gb, sms: 42, memoryMiB: 40192}, {uuid: MIG-b, profile: 3g.40gb, sms: 42, memoryMiB: 40192}]}
`

const halfMemory = 40192 * share.MiB

// sixthFunction may use all of an instance's memory except the 64 MiB that two other functions keep, and takes 40,000 MiB of it. Six such functions
// together need three times the memory of both instances, less 384 MiB. The weights are small, so that they fit into this host's memory, but take as long
// to load as large ones.
const sixthFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %s}
spec:
  slo: {latency: %s}
  idempotent: true
  protocol: OIP
  access: {namespaces: ["*"]}
  resources: {share: {sm: 100, quota: 100, memory: 40128Mi}}
  scaling: {minReplicas: 1, maxReplicas: 1, requestsPerSecond: 10, window: 2s}
  template:
    metadata: {annotations: {gshare.dev/isolation: swap, gshare.dev/slice: 3g.40gb}}
    spec:
      volumes: [{name: gpus, hostPath: {path: %[4]s/gpus}}, {name: driver, hostPath: {path: %[4]s/fake}}]
      terminationGracePeriodSeconds: 5
      containers:
      - name: server
        image: "` + modelImage + `"
        command: [/bin/sh, -c, 'FAKE_CUDA_SOCKET=/gpus/$CUDA_VISIBLE_DEVICES.sock FAKE_CUDA_SHARED=/gpus/$CUDA_VISIBLE_DEVICES.memory exec /bin/gshare-model "$@"', server]
        args: [--batch, 1=%[3]s, --weights, 64Mi, --workspace, 39936Mi, --load, 1500ms]
        env: [{name: LD_LIBRARY_PATH, value: /usr/lib/fake}, {name: FAKE_CUDA_MEMORY, value: "42144366592"}]
        volumeMounts: [{name: gpus, mountPath: /gpus}, {name: driver, mountPath: /usr/lib/fake}]
        readinessProbe: {periodSeconds: 1, httpGet: {path: /v2/health/ready, port: 8080}}
`

// sixth is one of the six functions.
type sixth struct {
	name       string
	slo, takes time.Duration
}

// six returns the functions. Some have an objective that not every request can meet.
func six() (all []sixth) {
	for i := range 6 {
		all = append(all, sixth{
			name: fmt.Sprintf("f%d", i), slo: []time.Duration{10 * time.Second, 15 * time.Second, 20 * time.Second}[i/2], takes: time.Duration(20+20*(i%3)) * time.Millisecond,
		})
	}
	return all
}

// sixRate is the rate of each function, in requests per second, and sixLength the duration of the load.
const (
	sixRate   = 0.8
	sixLength = 3 * time.Minute
)

// TestServingSixFunctions: six functions take turns in the memory of two MIG instances, which is a third of what they need. The driver never runs out of
// memory, as many requests are late or refused as in the simulator, and each request gets a response by its deadline, whichever component is killed.
func TestServingSixFunctions(t *testing.T) {
	s := startHalves(t)
	promised, taken := s.watchMemory(t), watchDriverMemory(t, filepath.Join(s.Dir, "gpus"))
	turns := s.watchTurns(t)
	began := time.Now()
	functions := six()
	var names []string
	for _, f := range functions {
		s.write(t, fmt.Sprintf(sixthFunction, f.name, f.slo, f.takes, s.Dir))
		names = append(names, f.name)
	}
	var started []v1.Pod
	s.wait(t, "all have started", func() bool { started = s.startedTurns(t, names); return len(started) == len(names) })
	on := map[string][]string{}
	for _, p := range started {
		slice := s.slicesOf(t, &p)[0]
		on[slice] = append(on[slice], p.Labels[api.LabelFunction])
	}
	t.Logf("all have started after %.1f s: %v", time.Since(began).Seconds(), on)
	if len(on) != 2 {
		t.Errorf("they are on %v", on)
	}
	t.Run("as simulated", func(t *testing.T) { s.playSix(t, functions, on, turns) })
	for _, part := range []struct {
		name string
		kill func(*testing.T) (restart func())
		lost bool // requests that the victim holds are lost
	}{
		{"agent killed", func(t *testing.T) func() {
			agent := s.of[s.Nodes[0].Name]
			agent.Kill()
			return func() {
				if err := agent.Restart(s.ctx); err != nil {
					t.Fatal(err)
				}
			}
		}, false},
		{"controller killed", s.killLeader, false},
		{"server killed", s.killServing(names), false},
		{"gateway killed", s.killOneOf("gshare-gateway"), true},
	} {
		t.Run(part.name, func(t *testing.T) { s.killsBesideSix(t, functions, part.kill, part.lost) })
	}
	t.Logf("at most %d MiB of an instance were granted, and %d taken, of %d", promised.Load()>>20, taken.Load()>>20, halfMemory/share.MiB)
	if most := share.Bytes(promised.Load()); most > halfMemory || most < 40128*share.MiB {
		t.Errorf("%d MiB of an instance were granted at once", most/share.MiB)
	}
	if most := share.Bytes(taken.Load()); most > halfMemory || most < 40000*share.MiB {
		t.Errorf("%d MiB of an instance were taken at once", most/share.MiB)
	}
	for _, name := range names {
		s.kubectl(t, "delete", "gpufunction", name)
	}
	s.wait(t, "no pods", func() bool { return len(s.startedTurns(t, names)) == 0 })
	s.waitBooks(s.ctx, t, s.Nodes[0])
}

// startHalves starts a cluster with serving. Its only node has the devices in halves with their simulations, and its agent lets pods take turns.
func startHalves(t *testing.T) *served {
	t.Helper()
	driver := buildDriver(t)
	images := []cluster.Image{servingImage(t, "gshare-controller"), servingImage(t, "gshare-gateway"), modelImageOf(t, driver)}
	s := &served{agents: startWithAgents(t, cluster.Options{Nodes: 1, Images: images}, halves)}
	var stop context.CancelFunc
	s.ctx, stop = context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(stop)
	s.http.Transport = &http.Transport{DialContext: s.Nodes[0].Machine.Dial}
	if err := os.CopyFS(filepath.Join(s.Dir, "fake"), os.DirFS(driver)); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(s.Dir, "gpus")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, slice := range []string{"MIG-a", "MIG-b"} {
		g, err := fakegpu.New(fakegpu.Config{Socket: filepath.Join(folder, slice+".sock")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
	}
	agent := s.of[s.Nodes[0].Name]
	agent.withoutDriver(s.ctx, t)
	s.configure(t, s.Nodes[0], "  swap: {hostMemoryMiB: 81920, keptMemoryMiB: 32}\n")
	s.serve(t)
	return s
}

// outcome is the result of a request.
type outcome struct {
	function int
	status   int    // 0: no response
	text     string // body of the response
	took     time.Duration
	err      error
}

// sendSix sends requests to the functions at the times of the arrivals, and returns the outcome of each.
func (s *served) sendSix(t *testing.T, functions []sixth, arrivals []traffic.Arrival) []outcome {
	t.Helper()
	c := s.newClients(t, "")
	all := make([]outcome, len(arrivals))
	var sending sync.WaitGroup
	began := time.Now()
	for n, a := range arrivals {
		time.Sleep(time.Until(began.Add(a.At)))
		sending.Go(func() {
			at := time.Now()
			status, text, err := c.answerOf(functions[a.Function].name)
			all[n] = outcome{int(a.Function), status, text, time.Since(at), err}
		})
	}
	sending.Wait()
	return all
}

// answerOf sends a request and returns its answer.
func (c *clients) answerOf(function string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(c.s.ctx, http.MethodPost, "http://gateway/", strings.NewReader("row"))
	if err != nil {
		return 0, "", err
	}
	request.Host = function + ".default"
	response, err := c.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// inTimeStatuses are the statuses of answers and of refusals.
var inTimeStatuses = []int{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// answerSlack is by how much a client on a busy machine may see the response later than the deadline. A response that a replica is about to give is not cut
// off at the deadline.
const answerSlack = 1500 * time.Millisecond

// peerSlack is how long a gateway may take to notice that the gateway holding a request was killed. It then refuses the request if it is late.
const peerSlack = 3 * time.Second

// checkOutcomes returns how many requests missed their objectives. It fails the test if a request has no response in time whose status is in statuses,
// those of answers and refusals; lost is the number of requests that need none.
func checkOutcomes(t *testing.T, functions []sixth, all []outcome, lost int, statuses ...int) (missed int) {
	t.Helper()
	slack := answerSlack
	if lost > 0 {
		slack += peerSlack
	}
	by, latest, refusals := map[int]int{}, time.Duration(0), map[string]int{}
	for _, o := range all {
		f := functions[o.function]
		by[o.status]++
		latest = max(latest, o.took-f.slo)
		if o.status != http.StatusOK || o.took > f.slo {
			missed++
		}
		if o.status != http.StatusOK {
			refusals[o.text]++
		}
		switch {
		case o.err != nil && lost > 0:
			lost--
		case o.err != nil:
			t.Errorf("%s: %v after %v", f.name, o.err, o.took)
		case o.took > f.slo+slack:
			t.Errorf("%s: status %d after %v, which is to be within %v", f.name, o.status, o.took, f.slo)
		case !slices.Contains(statuses, o.status):
			t.Errorf("%s: status %d", f.name, o.status)
		}
	}
	t.Logf("%d requests, by status %v; the last answer %v after its deadline; refusals %v", len(all), by, latest, refusals)
	return missed
}

func arrivalsOfSix(functions []sixth, length time.Duration, seed uint64) []traffic.Arrival {
	steady := traffic.Series{Name: "steady", Step: time.Second, Counts: slices.Repeat([]float64{sixRate}, int(length/time.Second))}
	var sources []traffic.Source
	for range functions {
		sources = append(sources, traffic.Source{Series: &steady, Scale: 1})
	}
	return traffic.Draw(sources, length, seed)
}

// playSix sends requests to the functions, and plays the same requests in the simulator, with the times that turns took to begin and to end here.
func (s *served) playSix(t *testing.T, functions []sixth, on map[string][]string, turns *turnTimes) {
	turns.reset()
	arrivals := arrivalsOfSix(functions, sixLength, 1)
	all := s.sendSix(t, functions, arrivals)
	missed := 100 * float64(checkOutcomes(t, functions, all, 0, inTimeStatuses...)) / float64(len(all))
	begins, leaves, written := turns.times()
	in := &simulator.Input{Arrivals: arrivals, Until: sixLength}
	for _, f := range functions {
		turn := &simulator.Turns{Takes: f.takes, Begins: begins, Leaves: leaves}
		for slice, names := range on {
			if slices.Contains(names, f.name) {
				turn.Slice = slice
			}
		}
		in.Functions = append(in.Functions, simulator.Function{Name: f.name, SLO: f.slo, Turns: turn})
	}
	simulated, err := simulator.Run(s.ctx, in, "turns")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests: %.2f %% missed, simulated %.2f %%; %d turns, simulated %d; a turn begins after %.2f s and leaves within %.2f s, with %.2f s for each to be written", len(all), missed,
		simulated.ViolationPercent(), len(begins), simulated.WarmStarts, mean(begins).Seconds(), mean(leaves).Seconds(), written.Seconds())
	if off := missed - simulated.ViolationPercent(); max(off, -off) > 2 {
		t.Errorf("the simulator differs by %.2f points", off)
	}
	for _, p := range s.startedTurns(t, namesOf(functions)) {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				t.Errorf("%s has failed: %+v", p.Name, c.LastTerminationState)
			}
		}
	}
	if reasons := s.kubectl(t, "get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}"); strings.Contains(reasons, "CannotPark") || strings.Contains(reasons, "CannotWake") {
		t.Errorf("events %s", reasons)
	}
}

func namesOf(functions []sixth) (names []string) {
	for _, f := range functions {
		names = append(names, f.name)
	}
	return names
}

// killsBesideSix sends requests to the functions while a component is killed. Afterwards, all functions must answer again.
func (s *served) killsBesideSix(t *testing.T, functions []sixth, kill func(*testing.T) (restart func()), loses bool) {
	arrivals := arrivalsOfSix(functions, 25*time.Second, 2)
	lost := 0
	if loses {
		lost = len(arrivals) / 2 // all that the killed gateway can hold
	}
	var all []outcome
	var sending sync.WaitGroup
	sending.Go(func() { all = s.sendSix(t, functions, arrivals) })
	time.Sleep(8 * time.Second)
	kill(t)()
	sending.Wait()
	t.Logf("%d missed", checkOutcomes(t, functions, all, lost, append(inTimeStatuses, http.StatusBadGateway)...)) // 502: a server failed, also at the retry
	c := s.newClients(t, "")
	answers := make([]bool, len(functions)) // whether a function has answered, since an objective may be shorter than a round of turns
	took := s.wait(t, "all functions answer", func() bool {
		var asking sync.WaitGroup
		for n, f := range functions {
			if !answers[n] {
				asking.Go(func() {
					status, _, err := c.answerOf(f.name)
					answers[n] = err == nil && status == http.StatusOK
				})
			}
		}
		asking.Wait()
		return !slices.Contains(answers, false)
	})
	t.Logf("all answer %.1f s later", took.Seconds())
}

// killServing kills a server during its turn. Its container restarts.
func (s *served) killServing(names []string) func(*testing.T) func() {
	return func(t *testing.T) func() {
		s.wait(t, "a server is killed", func() bool {
			for _, p := range s.startedTurns(t, names) {
				w, r, err := kube.ResidencyOf(&p)
				if err != nil || !residency.MaySend(w, r) {
					continue
				}
				pids := pidsOf(t, &p)
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL) // the process may already have ended
				}
				return len(pids) > 0
			}
			return false
		})
		return func() {}
	}
}
