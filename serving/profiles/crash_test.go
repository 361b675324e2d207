package profiles

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// shortProfile has few trials, but two batches on a share, a second share, and a best one that is measured again.
func shortProfile() *api.GPUProfile {
	return someProfile(func(p *api.GPUProfile) { p.Spec.Search.Step, p.Spec.Search.MaxBatch = 40, 2 })
}

// shortGrid has two quotas of one share, so that a server changes its own.
func shortGrid() *api.GPUProfile {
	return someProfile(func(p *api.GPUProfile) {
		p.Spec.Search = api.ProfileSearch{Strategy: api.Grid, SM: []int64{40}, Quota: []int64{50, 100}}
	})
}

// short are the profiles that are killed at their steps.
var short = map[string]func() *api.GPUProfile{"growth": shortProfile, "grid": shortGrid}

var full = flag.Bool("full", false, "kill at each step, not at some")

// tried reports whether something is killed at a step: at one of a few.
func tried(step, few int) bool { return *full || step%few == 0 }

// TestCrashes kills the controller before and after each of its writes: nothing is lost, and nothing measured twice.
func TestCrashes(t *testing.T) {
	for name, made := range short {
		t.Run(name, func(t *testing.T) { testCrashes(t, made) })
	}
}

func testCrashes(t *testing.T, made func() *api.GPUProfile) {
	var want string
	var writes, measurements int
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, made())
		want = result(w, w.run())
		writes, measurements = w.writes, w.measurements()
	})
	if writes < 12 {
		t.Fatalf("%d writes are too few for a test", writes)
	}
	for n := 1; n <= writes; n++ {
		for _, after := range []bool{false, true} {
			if !tried(n, 6) {
				continue
			}
			t.Run(fmt.Sprintf("write %d, done %t", n, after), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, made())
					w.crash = func(write int) (bool, bool) { return write == n && !after, write == n && after }
					if got := result(w, w.run()); got != want {
						t.Error(cmp.Diff(want, got))
					}
					if w.measurements() != measurements {
						t.Errorf("%d measurements, want %d", w.measurements(), measurements)
					}
				})
			})
		}
	}
	t.Run("each write", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, made())
			w.crash = func(write int) (bool, bool) { return write%3 == 0, write%3 == 1 }
			if got := result(w, w.run()); got != want {
				t.Error(cmp.Diff(want, got))
			}
		})
	})
}

// TestKills kills the server or the client at each step: nothing is lost, and at most one trial is measured again.
func TestKills(t *testing.T) {
	for name, made := range short {
		t.Run(name, func(t *testing.T) { testKills(t, made) })
	}
}

func testKills(t *testing.T, made func() *api.GPUProfile) {
	var want string
	var measurements int
	steps := map[string][]int{} // at which a container of the name runs
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, made())
		w.kill = func(step int, p *v1.Pod) bool {
			steps[p.Spec.Containers[0].Name] = append(steps[p.Spec.Containers[0].Name], step)
			return false
		}
		want = result(w, w.run())
		measurements = w.measurements()
	})
	for _, kind := range []string{"server", clientName} {
		killed, tries := 0, 0
		for at, n := range steps[kind] {
			if !tried(at, 3) {
				continue
			}
			tries++
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, made())
				w.kill = func(step int, p *v1.Pod) bool {
					kills := step == n && p.Spec.Containers[0].Name == kind
					if kills {
						killed++
					}
					return kills
				}
				if got := result(w, w.run()); got != want {
					t.Errorf("%s killed at step %d: %s", kind, n, cmp.Diff(want, got))
				}
				if w.measurements() > measurements+1 {
					t.Errorf("%s killed at step %d: %d measurements, want at most %d", kind, n, w.measurements(), measurements+1)
				}
			})
		}
		if killed == 0 || killed != tries {
			t.Errorf("%s was killed %d times, and ran at steps %v", kind, killed, steps[kind])
		}
	}
}

// TestOldReads lets the controller read pods as they were before its last writes, as a cache may have them.
func TestOldReads(t *testing.T) {
	var want string
	var measurements int
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, shortProfile())
		want, measurements = result(w, w.run()), w.measurements()
	})
	for lag := 1; lag <= 4; lag++ {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, shortProfile())
			var seen []*v1.PodList
			w.client = interceptor.NewClient(w.client, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					pods, ok := list.(*v1.PodList)
					if err := c.List(ctx, list, options...); err != nil || !ok {
						return err
					}
					seen = append(seen, pods.DeepCopy())
					*pods = *seen[max(0, len(seen)-1-lag)].DeepCopy()
					return nil
				},
			})
			if got := result(w, w.run()); got != want {
				t.Errorf("lag %d: %s", lag, cmp.Diff(want, got))
			}
			if w.measurements() != measurements {
				t.Errorf("lag %d: %d measurements, want %d", lag, w.measurements(), measurements)
			}
		})
	}
}
