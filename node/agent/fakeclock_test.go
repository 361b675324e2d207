package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/mps"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestPublisherLoop: the inventory is published immediately, and an enforcement status once no share has been granted for a moment.
// After an error, the publisher retries. The loop runs on a fake clock.
func TestPublisherLoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		api := &cluster{enforced: map[types.UID]string{}}
		a, err := New(Options{
			Config: config.Configuration{Directory: dir}.WithDefaults(), Source: gpu.Simulated{}, MPS: mps.Daemons{Simulated: true},
			Cluster: api, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.slices.Close)
		a.metrics.registered.Store(1)
		a.granter.grants.restore(grant.Grant{
			Owner: grant.Owner{UID: "a", Container: "main"}, Since: time.Now(), VGPUs: []kube.PlacedVGPU{{Slice: "GPU-0", Class: share.Exclusive}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		go a.publisher.loop(ctx, ctx)
		after := func(d time.Duration, inventory, enforcement bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			api.mu.Lock()
			defer api.mu.Unlock()
			if (api.inventory != "") != inventory || (api.enforced["a"] != "") != enforcement {
				t.Errorf("inventory %q, enforcement status %q", api.inventory, api.enforced["a"])
			}
		}
		after(enforcementQuiet-time.Millisecond, true, false)
		after(time.Millisecond+publishPause, true, true)

		api.mu.Lock()
		api.away, api.inventory = true, ""
		api.mu.Unlock()
		signal(a.publisher.requests)
		after(publishPause, false, true)
		api.mu.Lock()
		api.away = false
		api.mu.Unlock()
		after(publishRetry-publishPause, false, true)
		after(2*publishPause, true, true)
	})
}

// TestServingContext: an agent whose node cannot be closed stops serving after the timeout.
func TestServingContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{Options: &Options{Log: slog.New(slog.DiscardHandler)}, requests: make(chan struct{}, 1), closed: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		serving, stop := p.servingContext(ctx)
		defer stop()
		cancel()
		time.Sleep(closeTimeout - time.Millisecond)
		synctest.Wait()
		if serving.Err() != nil {
			t.Error("the agent ends before the timeout")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if serving.Err() == nil {
			t.Error("the agent serves after the timeout")
		}
	})
}

// TestAsyncCall: a call that hangs is not repeated, and its late result is returned by a later Await.
func TestAsyncCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := asyncCall[int]{call: func() (int, error) {
			calls++
			time.Sleep(5 * time.Second)
			return calls, nil
		}}
		for range 2 {
			if _, err := c.Await(t.Context(), 2*time.Second); !errors.Is(err, errHung) {
				t.Errorf("%v, want %v", err, errHung)
			}
		}
		if n, err := c.Await(t.Context(), 2*time.Second); n != 1 || err != nil || calls != 1 {
			t.Errorf("result %d, %v after %d calls", n, err, calls)
		}
	})
}

// TestOperationLocks: operations on the same container wait for each other, and one that takes too long is detected.
func TestOperationLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l operationLocks
		unlock := l.lock("a")
		l.lock("b")()
		entered := false
		go func() {
			defer l.lock("a")()
			entered = true
		}()
		time.Sleep(time.Minute)
		if entered || l.overdue(30*time.Second) != "a" || l.overdue(2*time.Minute) != "" {
			t.Errorf("entered %v, stuck %q", entered, l.overdue(30*time.Second))
		}
		unlock()
		synctest.Wait()
		if !entered || l.overdue(0) != "" || len(l.held) > 0 {
			t.Errorf("entered %v, %d locks are left", entered, len(l.held))
		}
	})
}
