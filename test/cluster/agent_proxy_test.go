package cluster_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/cluster"
)

// How often a program is killed during a burst, and for how long it is away: the kubelet first restarts a container after about a
// second.
const (
	kills = 10
	away  = time.Second
)

// TestAgentProxy kills the agent and the proxy while pods arrive, and counts the pods that the kubelet fails. Without the proxy the
// kubelet must fail some, or the test would prove nothing.
func TestAgentProxy(t *testing.T) {
	a, node := startLoaded(t)
	agent := a.of[node.Name]
	killAgent := func(ctx context.Context, t *testing.T) {
		agent.Kill()
		time.Sleep(away)
		if err := agent.Restart(ctx); err != nil {
			t.Error(err)
		}
	}
	startProxy := func(ctx context.Context, t *testing.T) {
		if err := agent.proxy.Restart(ctx); err != nil {
			t.Error(err)
		}
		agent.waitProxy(ctx, t)
	}
	for _, test := range []struct {
		name        string
		rounds      int
		round       func(context.Context, *testing.T)
		least, most int // how many pods the kubelet may fail
	}{
		{"agent killed", kills, killAgent, 0, 0},
		{"proxy killed", kills, func(ctx context.Context, t *testing.T) {
			agent.proxy.Kill()
			time.Sleep(away)
			startProxy(ctx, t)
		}, 0, mostFailed},
		{"proxy killed after the agent", kills / 2, func(ctx context.Context, t *testing.T) { // the agent is not registered with the kubelet itself
			killAgent(ctx, t)
			agent.waitProxy(ctx, t)
			agent.proxy.Kill()
			time.Sleep(away)
			startProxy(ctx, t)
		}, 0, mostFailed},
		{"proxy replaced", kills / 2, func(ctx context.Context, t *testing.T) {
			agent.proxy.Stop()
			startProxy(ctx, t)
		}, 0, 0},
		{"agent of another protocol", 1, func(ctx context.Context, t *testing.T) {
			old := agent.program
			old.Path = buildOf(t, "../..", "gshare-node-protocol-0", "./cmd/gshare-node", "-ldflags=-X github.com/gshare-dev/gshare/deviceplugin.protocol=0")
			agent.Kill()
			agent.run(ctx, t, old) // returns once the agent is ready, and so registered
			time.Sleep(5 * everyArrival)
			agent.Kill()
			agent.start(ctx, t)
			agent.waitProxy(ctx, t)
			if text, err := os.ReadFile(agent.proxy.LogFile); err != nil || !bytes.Contains(text, []byte("the agent supports version 0 of the proxy's protocol")) {
				t.Errorf("%v; the proxy's log does not say that the agent is of another version:\n%s", err, text)
			}
		}, 0, mostFailed},
		{"agent killed without a proxy", kills / 2, func(ctx context.Context, t *testing.T) {
			agent.proxy.Kill() // takes effect in the first round
			killAgent(ctx, t)
		}, 1, arriving},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := testContext(t)
			before := a.load(ctx, t, node)
			began := time.Now()
			var rounds sync.WaitGroup
			over := make(chan struct{})
			rounds.Go(func() {
				defer close(over)
				for range test.rounds {
					test.round(ctx, t)
				}
			})
			a.arriveDuring(ctx, t, node, over, time.Duration(test.rounds)*(away+away/2)/arriving)
			rounds.Wait()
			t.Logf("%d rounds took %v", test.rounds, time.Since(began))
			failed := a.settle(ctx, t, node, before)
			t.Logf("all run after %v; the kubelet failed %d of %d pods that came", time.Since(began), failed, arriving)
			if failed < test.least || failed > test.most {
				t.Errorf("the kubelet failed %d of %d pods, want %d to %d", failed, arriving, test.least, test.most)
			}
			a.clear(ctx, t)
		})
	}
}

// arriveDuring creates the pods of a burst at intervals of distance. Once over is closed, it creates the rest at once.
func (a *agents) arriveDuring(ctx context.Context, t *testing.T, node *cluster.Node, over <-chan struct{}, distance time.Duration) {
	t.Helper()
	for n := range arriving {
		a.arrive(ctx, t, node, n, n+1)
		select {
		case <-over:
		case <-time.After(distance): // the rate of arrivals
		}
	}
}
