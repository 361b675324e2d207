package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/identity"
)

var full = flag.Bool("full", false, "run experiments in full: the API server is away for ten minutes, and all loads of table 7 are played")

// Times of TestServingWithoutAPIServer. afterwards is long enough for the node controller to mark nodes as unreachable and for kubelets to correct that, and
// also for pods to be evicted from such nodes if the kubelets did not.
const (
	known      = 5 * time.Second // before the outage, so that gateways get to know the callers
	seldom     = 50 * time.Second
	afterwards = 90 * time.Second
)

// TestServingWithoutAPIServer stops the API server for one minute, or for ten, while pods and holders of tokens send requests. None is lost, neither during
// the outage nor when the API server comes back, although the kubelets and the node controller have not heard from each other for longer than the cluster's
// grace period. In the end the same pods serve, no gateway was restarted, a controller leads again, and the function scales.
func TestServingWithoutAPIServer(t *testing.T) {
	outage := time.Minute
	if *full {
		outage = 10 * time.Minute
	}
	s := startServing(t)
	ctx, stop := context.WithTimeout(t.Context(), outage+afterwards+15*time.Minute)
	defer stop()
	s.ctx = ctx
	s.write(t, strings.NewReplacer("latency: 2s", "latency: 10s", `["*"]`, "[]").Replace(sharedFunction)) // only callers of its own namespace
	s.wait(t, "two pods", func() bool { return s.ready(t) == 2 })
	_, leader := s.leader(t)
	pods, gateways := s.uids(t), s.lives(t, "gshare-gateway")

	callers := map[string]*clients{}
	load, end := context.WithCancel(s.ctx)
	defer end()
	for name, send := range map[string]func(*clients){
		"pod":                   func(c *clients) { c.send(load, 5) },
		"token":                 func(c *clients) { c.send(load, 5) },
		"token, once in a time": func(c *clients) { c.sendEach(load, seldom) },
	} {
		c := s.newClients(t, "resnet50")
		if name == "pod" {
			c.from = dialFrom(pidsOf(t, &s.pods(t, "default", api.LabelFunction, "resnet50")[0])[0])
		} else {
			c.token = s.tokenFor(t, "default", identity.AudienceFunctions)
		}
		callers[name] = c
		c.running.Go(func() { send(c) })
	}
	time.Sleep(known)
	s.APIServer.Kill()
	time.Sleep(outage / 2)
	callers["pod"].burst(20)
	callers["token"].burst(20)
	time.Sleep(outage - outage/2)
	if err := s.APIServer.Restart(s.ctx); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	s.wait(t, "a controller leads", func() bool {
		lease, err := s.Client().CoordinationV1().Leases("gshare-system").Get(s.ctx, "gshare-controller", metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(back)
	})
	_, now := s.leader(t)
	t.Logf("after %v without API server a controller leads %.1f s after it is back; before it was %s, now %s", outage, time.Since(back).Seconds(), leader, now)
	time.Sleep(afterwards - time.Since(back))
	end()
	for name, c := range callers {
		sent, failed := c.wait()
		t.Logf("%s: %d requests, %d failed, the slowest took %v", name, sent, len(failed), c.slowest)
		if len(failed) > 0 || sent == 0 {
			t.Errorf("%s: %d of %d requests failed: %v", name, len(failed), sent, countOf(failed))
		}
	}
	t.Log("\n" + s.kubectl(t, "get", "events", "-A", "--field-selector", "reason=NodeNotReady"))
	if now := s.uids(t); !slices.Equal(now, pods) {
		t.Errorf("other pods than before: %v, %v", pods, now)
	}
	if now := s.lives(t, "gshare-gateway"); !slices.Equal(now, gateways) {
		t.Errorf("other gateways than before: %v, %v", gateways, now)
	}
	s.wait(t, "controllers are ready", func() bool { return s.readyOf(t, "gshare-controller") == 2 })
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
	s.scalesAgain(t)
}

// countOf counts errors by their text. Requests refused as late indicate that the machine is too busy; requests refused as unknown, that the API server is
// missed.
func countOf(errs []error) map[string]int {
	counts := map[string]int{}
	for _, err := range errs {
		counts[err.Error()]++
	}
	return counts
}

// lives returns the pods of a serving component, with the number of times that each was restarted.
func (s *served) lives(t *testing.T, app string) (all []string) {
	t.Helper()
	for _, p := range s.pods(t, "gshare-system", "app", app) {
		all = append(all, fmt.Sprintf("%s restarted %d times", p.UID, p.Status.ContainerStatuses[0].RestartCount))
	}
	slices.Sort(all)
	return all
}

// scalesAgain: a function with two pods gets a third one under more load, and loses it afterwards.
func (s *served) scalesAgain(t *testing.T) {
	c := s.newClients(t, "resnet50")
	c.token = s.tokenFor(t, "default", identity.AudienceFunctions)
	ctx, stop := context.WithTimeout(s.ctx, time.Minute)
	defer stop()
	c.running.Go(func() { c.send(ctx, 120) })
	took := s.wait(t, "a third pod", func() bool { return s.ready(t) > 2 })
	stop()
	sent, failed := c.wait() // some are refused until there are enough pods
	t.Logf("a third pod is ready after %.1f s; %d requests, %d refused: %v", took.Seconds(), sent, len(failed), firstOf(failed))
	s.wait(t, "two pods", func() bool { return len(s.uids(t)) == 2 })
}
