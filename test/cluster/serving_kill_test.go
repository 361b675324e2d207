package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// sharedFunction has two replicas with a quarter of a GPU each, and gets a third one at more than 100 requests per second.
const sharedFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 2s}
  idempotent: true
  access: {namespaces: ["*"]}
  resources: {share: {sm: 24, quota: 40, memory: 1Gi}}
  scaling: {minReplicas: 2, maxReplicas: 4, requestsPerSecond: 50, window: 2s, keepShared: 1s}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms]}]}}
`

// servingLoads are what clients do while a component of serving is killed with SIGKILL.
var servingLoads = []struct {
	name  string
	rate  int // requests per second
	burst int // concurrent requests, sent at the time of the kill
}{{"idle", 0, 0}, {"load", 40, 0}, {"burst", 20, 60}}

// TestServingKills kills each component of serving, and of the cluster that it runs on, under three loads. Only requests held by a killed gateway
// may be lost. No pod is created twice, no share is granted twice, and each component resumes its work afterwards.
func TestServingKills(t *testing.T) {
	s := startServing(t)
	s.write(t, sharedFunction)
	s.wait(t, "two pods", func() bool { return s.ready(t) == 2 })
	node := s.Nodes[0]
	process := func(kill func(), restart func(context.Context) error) func(*testing.T) func() {
		return func(t *testing.T) func() {
			kill()
			return func() {
				if err := restart(s.ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, victim := range []struct {
		name string
		kill func(*testing.T) (restart func())
		lost bool // requests that the victim holds are lost
	}{
		{"nobody", func(*testing.T) func() { return func() {} }, false}, // the control: the effect of the load alone
		{"gateway", s.killOneOf("gshare-gateway"), true},
		{"controller", s.killLeader, false},
		{"agent", process(s.of[node.Name].Kill, s.of[node.Name].Restart), false},
		{"kubelet", process(node.Kubelet.Kill, node.Kubelet.Restart), false},
		{"scheduler", process(s.Scheduler.Kill, s.Scheduler.Restart), false},
		{"API server", process(s.APIServer.Kill, s.APIServer.Restart), false},
	} {
		for _, load := range servingLoads {
			t.Run(victim.name+"/"+load.name, func(t *testing.T) {
				before := s.uids(t)
				c := s.newClients(t, "resnet50")
				time.Sleep(time.Second)
				ctx, stop := context.WithTimeout(s.ctx, 6*time.Second)
				defer stop()
				c.running.Go(func() { c.send(ctx, load.rate) })
				time.Sleep(2 * time.Second)
				restart := victim.kill(t)
				c.burst(load.burst)
				time.Sleep(2 * time.Second)
				restart()
				time.Sleep(3 * time.Second)
				sent, failed := c.wait()
				t.Logf("%d requests, the slowest took %.2f s, %d failed: %v", sent, c.slowest.Seconds(), len(failed), firstOf(failed))
				if most := load.burst + 4; len(failed) > 0 && (!victim.lost || len(failed) > most) {
					t.Errorf("%d of %d requests failed, such as %v", len(failed), sent, failed[0])
				}
				if err := s.ask(t, "resnet50"); err != nil {
					t.Errorf("afterwards: %v", err)
				}
				if load.rate == 0 && !slices.Equal(before, s.uids(t)) {
					t.Errorf("other pods than before: %v, %v", before, s.uids(t))
				}
				s.checkInstances(t)
				for _, n := range s.Nodes {
					s.waitBooks(s.ctx, t, n)
				}
			})
		}
	}
	t.Run("scales afterwards", s.scalesAgain)
}

func firstOf(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// uids returns the UIDs of the function's pods, sorted.
func (s *served) uids(t *testing.T) (all []string) {
	t.Helper()
	for _, p := range s.pods(t, "default", api.LabelFunction, "resnet50") {
		all = append(all, string(p.UID))
	}
	slices.Sort(all)
	return all
}

// checkInstances checks that no two pods are the same instance.
func (s *served) checkInstances(t *testing.T) {
	t.Helper()
	seen := map[string]string{}
	for _, p := range s.pods(t, "default", api.LabelFunction, "resnet50") {
		id := p.Labels[api.LabelInstance]
		if seen[id] != "" {
			t.Errorf("pods %s and %s are both instance %s", seen[id], p.Name, id)
		}
		seen[id] = p.Name
	}
}

// killOneOf kills the processes of one of a Deployment's pods, which the kubelet restarts.
func (s *served) killOneOf(app string) func(*testing.T) func() {
	return func(t *testing.T) func() {
		pod := s.pods(t, "gshare-system", "app", app)[0]
		s.kill(t, &pod)
		return func() { s.wait(t, app+" is ready again", func() bool { return s.readyOf(t, app) == 2 }) }
	}
}

func (s *served) killLeader(t *testing.T) func() {
	leader, holder := s.leader(t)
	s.kill(t, &leader)
	return func() {
		s.wait(t, "another leader", func() bool { return s.leadsAfter(t, holder) })
		s.wait(t, "controllers are ready", func() bool { return s.readyOf(t, "gshare-controller") == 2 })
	}
}

func (s *served) readyOf(t *testing.T, app string) (n int) {
	t.Helper()
	for _, p := range s.pods(t, "gshare-system", "app", app) {
		if _, ready := api.Address(&p); ready {
			n++
		}
	}
	return n
}

// clients send requests to all gateways in turn, and try the next one if a connection is refused, so that they behave like clients of a Service with
// readiness probes.
type clients struct {
	s         *served
	function  string // in namespace default
	path      string
	body      string
	addresses []string
	from      func(ctx context.Context, network, address string) (net.Conn, error)
	token     string // of a service account; empty: none
	http      http.Client
	running   sync.WaitGroup

	mu      sync.Mutex
	next    int
	sent    int
	failed  []error
	slowest time.Duration // longest time until an answer
	last    string        // latest answer
}

func (s *served) newClients(t *testing.T, function string) *clients {
	t.Helper()
	c := &clients{s: s, function: function, path: "/", from: s.Nodes[0].Machine.Dial}
	for _, p := range s.pods(t, "gshare-system", "app", "gshare-gateway") {
		c.addresses = append(c.addresses, net.JoinHostPort(p.Status.PodIP, "8080"))
	}
	if len(c.addresses) != 2 {
		t.Fatalf("gateways %v", c.addresses)
	}
	c.http.Transport = &http.Transport{DialContext: c.dial, MaxIdleConnsPerHost: 100}
	return c
}

// dial connects to the next gateway, or if that fails, to the other one.
func (c *clients) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	c.mu.Lock()
	c.next++
	first := c.next
	c.mu.Unlock()
	var err error
	for n := range c.addresses {
		var connection net.Conn
		if connection, err = c.from(ctx, network, c.addresses[(first+n)%len(c.addresses)]); err == nil {
			return connection, nil
		}
	}
	return nil, err
}

// send sends requests at a rate, in requests per second, until ctx ends.
func (c *clients) send(ctx context.Context, rate int) {
	if rate > 0 {
		c.sendEach(ctx, time.Second/time.Duration(rate))
	}
}

// sendEach sends one request immediately, and another one after each pause, until ctx ends.
func (c *clients) sendEach(ctx context.Context, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		c.burst(1)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// burst sends n requests at once.
func (c *clients) burst(n int) {
	for range n {
		c.running.Go(c.one)
	}
}

func (c *clients) one() {
	began := time.Now()
	err := c.request()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	c.slowest = max(c.slowest, time.Since(began))
	if err != nil {
		c.failed = append(c.failed, err)
	}
}

func (c *clients) request() error {
	request, err := http.NewRequestWithContext(c.s.ctx, http.MethodPost, "http://gateway"+c.path, strings.NewReader(c.body))
	if err != nil {
		return err
	}
	request.Host = c.function + ".default"
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = string(body)
	return err
}

// wait waits until no more requests are being sent and all are answered, and returns the number of requests and the errors of those that failed.
func (c *clients) wait() (sent int, failed []error) {
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent, c.failed
}
