package fleet

import (
	"slices"
	"testing"
	"time"
)

// stuckPlatform is a platform on which one instance does not end.
type stuckPlatform struct {
	Platform
	stuck string
}

func (p *stuckPlatform) Delete(name string) {
	if name != p.stuck {
		p.Platform.Delete(name)
	}
}

// TestReplacedDoesNotEnd: a replica that has been replaced and does not end holds up the change of the others, and all moves, only for its grace period
// and a minute.
func TestReplacedDoesNotEnd(t *testing.T) {
	const two = "minReplicas: 2, maxReplicas: 2, requestsPerSecond: 10"
	object, live := decode(t, two, nil), func(int) life { return life{start: second} }
	startObject(t, object, live, func(f *Fleet) { f.platform = &stuckPlatform{f.platform, "f-1"} }, func(w *world) {
		sleep(5 * second)
		if err := w.fleet.Set(decode(t, two, otherShare)); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after   time.Duration
			want    []string
			movable int
		}{{60 * second, []string{"f-1", "f-2", "f-3"}, 0}, {20 * second, []string{"f-1", "f-3", "f-4"}, 2}} {
			sleep(step.after)
			if all, _ := w.fleet.Movable(); !slices.Equal(w.names(), step.want) || len(all) != step.movable {
				t.Errorf("%v run, %d can be moved, want %v and %d", w.names(), len(all), step.want, step.movable)
			}
		}
		w.memory.Delete("f-1")
	})
}
