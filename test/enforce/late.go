package enforce

import (
	"math/rand/v2"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
)

// lateClock is a clock whose timers expire late, by a random time up to most, as those of a loaded machine do.
type lateClock struct {
	tokenserver.Clock
	most time.Duration
}

type lateTimer struct {
	tokenserver.Timer
	random *rand.Rand
	most   time.Duration
}

func (c lateClock) NewTimer(fire func()) tokenserver.Timer {
	return lateTimer{c.Clock.NewTimer(fire), rand.New(rand.NewPCG(1, 1)), c.most}
}

// Set is called with the lock of the timer's slice held.
func (t lateTimer) Set(at time.Duration) {
	t.Timer.Set(at + time.Duration(t.random.Int64N(int64(t.most)+1)))
}
