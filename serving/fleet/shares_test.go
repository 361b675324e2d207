package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// mixed returns a complete function whose profile recommends 20 % of the SMs for 100 requests per second, and has also measured smaller shares.
func mixed(t *testing.T, change func(*api.GPUFunction)) *api.GPUFunction {
	t.Helper()
	f := decode(t, "requestsPerSecond: 100, maxReplicas: 20, window: 4s, keepShared: 1s", nil)
	f.Spec.Resources.Share, f.Spec.Scaling.RequestsPerSecond = nil, 0
	f.Spec.Scaling.Shares, f.Spec.ProfileRef = api.MixedShares, &api.ProfileReference{Name: "f"}
	f.Status.Profiled = &api.ProfileRecommendation{
		SM: 20, Quota: 100, Memory: "1Gi", MaxBatch: 1, RequestsPerSecond: 100,
		Smaller: []api.MeasuredShare{{SM: 5, Quota: 40, RequestsPerSecond: 8}, {SM: 10, Quota: 100, RequestsPerSecond: 40}},
	}
	if change != nil {
		change(f)
	}
	complete, err := f.CompleteForCluster(share.Bytes(80<<10) * share.MiB)
	if err != nil {
		t.Fatal(err)
	}
	return complete
}

// shares is a fleet whose load the test sets, in requests per second.
type shares struct {
	*memory
	remote *remote
	fleet  *Fleet
	count  uint64
}

// startShares runs a test in virtual time, with replicas left by an earlier process.
func startShares(t *testing.T, f *api.GPUFunction, existing []Existing, test func(*shares)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &memory{T: t, events: make(chan Event), live: func(int) life { return life{start: second} }, begin: time.Now(),
			running: map[string]chan struct{}{}, busy: map[string]int{}}
		s := &shares{memory: m, remote: &remote{Gateway: gateway.New(gateway.Config{Upstream: m})}}
		for _, e := range existing {
			end := make(chan struct{}, 1)
			i := Instance{Name: InstanceName(name, e.ID), ID: e.ID, Function: f}
			m.running[i.Name] = end
			go m.run(i, life{start: time.Hour}, end)
		}
		var err error
		if s.fleet, err = New(Config{Gateways: s.remote, Platform: m, Log: slog.New(slog.DiscardHandler)}, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.fleet.Restore(f, existing, nil); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); s.fleet.Run(ctx) }()
		synctest.Wait()
		test(s)
		cancel()
		<-done
	})
}

// load generates the same number of requests in each of some seconds.
func (s *shares) load(rate uint64, seconds int) {
	for range seconds {
		time.Sleep(second / 2)
		s.count += rate
		s.remote.count(s.count)
		time.Sleep(second / 2)
	}
	synctest.Wait()
}

// running returns the number of instances that are not about to end, by their SMs in percent.
func (s *shares) running() map[int]int {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	found := map[int]int{}
	for _, i := range s.fleet.instances {
		if i.phase == ready || i.phase == starting {
			found[int(i.Share.SMRequest)/10]++
			if i.Function.Share() != i.Share {
				s.Errorf("%s: the share %+v, but its function's is %+v", i.Name, i.Share, i.Function.Share())
			}
		}
	}
	return found
}

// TestMixedShares follows FaST-GShare's Algorithm 1: as many replicas of the recommended share as the load keeps busy, and for the rest the smallest
// share that answers it. The least efficient replicas end first. Relative to SM-time, the share of 20 % answers 500, that of 10 % 400, and that of 5 %
// with a quota of 40 % also 400.
func TestMixedShares(t *testing.T) {
	for _, test := range []struct {
		load uint64
		want map[int]int
	}{
		{load: 3, want: map[int]int{5: 1}},
		{load: 30, want: map[int]int{10: 1}},
		{load: 60, want: map[int]int{20: 1}},
		{load: 106, want: map[int]int{20: 1, 5: 1}},
		{load: 230, want: map[int]int{20: 2, 10: 1}},
	} {
		t.Run(fmt.Sprint(test.load), func(t *testing.T) {
			startShares(t, mixed(t, nil), nil, func(s *shares) {
				// From zero, one replica starts for the load of the first second, and the others for that of the window.
				if s.load(test.load, 12); !maps.Equal(s.running(), test.want) {
					t.Errorf("%v, want %v", s.running(), test.want)
				}
			})
		})
	}
	t.Run("falls", func(t *testing.T) {
		startShares(t, mixed(t, nil), nil, func(s *shares) {
			s.load(230, 12)
			if s.load(190, 20); !maps.Equal(s.running(), map[int]int{20: 2}) {
				t.Errorf("%v: the least efficient is to leave first", s.running())
			}
			if s.load(0, 30); len(s.running()) > 0 {
				t.Errorf("%v without load", s.running())
			}
		})
	})
	t.Run("at the maximum", func(t *testing.T) { // small replicas, started while the load rose slowly, are in the way
		startShares(t, mixed(t, func(f *api.GPUFunction) { f.Spec.Scaling.MaxReplicas = new(2) }), nil, func(s *shares) {
			s.load(6, 12)
			if s.load(30, 12); !maps.Equal(s.running(), map[int]int{5: 1, 10: 1}) {
				t.Fatalf("%v", s.running())
			}
			if s.load(40, 20); !maps.Equal(s.running(), map[int]int{5: 1, 10: 1}) {
				t.Errorf("%v, though they answer 48", s.running())
			}
			if s.load(180, 30); !maps.Equal(s.running(), map[int]int{20: 2}) || s.mostAtOnce() > 3 {
				t.Errorf("%v answer less than the function may have; %d at once", s.running(), s.mostAtOnce())
			}
			if s.load(300, 30); !maps.Equal(s.running(), map[int]int{20: 2}) || len(s.created) != 4 {
				t.Errorf("%v, %d were created", s.running(), len(s.created))
			}
		})
	})
	t.Run("single", func(t *testing.T) {
		startShares(t, mixed(t, func(f *api.GPUFunction) { f.Spec.Scaling.Shares = api.SingleShare }), nil, func(s *shares) {
			if s.load(230, 12); !maps.Equal(s.running(), map[int]int{20: 3}) {
				t.Errorf("%v", s.running())
			}
		})
	})
}

// TestMixedSharesChange: replicas whose share is no longer in the profile are replaced, and others stay.
func TestMixedSharesChange(t *testing.T) {
	startShares(t, mixed(t, nil), nil, func(s *shares) {
		s.load(230, 12)
		before := len(s.created)
		changed := mixed(t, func(f *api.GPUFunction) { f.Status.Profiled.Smaller = f.Status.Profiled.Smaller[:1] })
		if err := s.fleet.Set(changed); err != nil {
			t.Fatal(err)
		}
		s.load(230, 12)
		if want := (map[int]int{20: 3}); !maps.Equal(s.running(), want) || len(s.created) != before+1 {
			t.Errorf("%v, %d were created, want %v by one more", s.running(), len(s.created)-before, want)
		}
	})
}

// TestMixedSharesRestored: another process continues with replicas of each share, and knows the rate of each.
func TestMixedSharesRestored(t *testing.T) {
	f := mixed(t, nil)
	var existing []Existing
	for n, v := range f.Variants() {
		existing = append(existing, Existing{ID: scaling.ID(n + 1), Share: v.Share(), Address: "1.2.3.4:80"})
	}
	startShares(t, f, existing, func(s *shares) {
		if want := (map[int]int{20: 1, 10: 1, 5: 1}); !maps.Equal(s.running(), want) {
			t.Errorf("%v, want %v", s.running(), want)
		}
		if s.load(145, 12); len(s.created) > 0 { // capacity for 148
			t.Errorf("%d were created", len(s.created))
		}
		sms := slices.Sorted(maps.Keys(s.running()))
		if !slices.Equal(sms, []int{5, 10, 20}) {
			t.Errorf("%v", sms)
		}
	})
}
