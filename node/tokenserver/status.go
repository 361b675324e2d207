package tokenserver

import (
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Status is the state of a container, for metrics and status reports.
type Status struct {
	ID          string
	Connections int
	Refusals    uint64 // connections of its processes that the server refused or ended
	SelfPaced   int    // processes that have a session and yet do not follow the server, but pace themselves
	Refused     string // why the server refuses a process at present; empty if it refuses none
	VGPUs       []VGPUStatus
}

// VGPUStatus is the state of one vGPU of a container. Its measured values are those that the processes report. It has many fields because it
// is one row of a table, of which metrics and commands each show a part.
type VGPUStatus struct {
	share.Share    // with its present quota, see Container.Narrow
	UUID           string
	Index          int
	Busy           time.Duration  // device time of the last second
	Total          time.Duration  // device time since the container was added
	Launches       uint64         // kernel launches since then, including those of processes that have ended
	Tokens         uint64         // tokens granted since then
	Waits          Waits          // waits for tokens since then
	Overruns       token.Overruns // overruns that it caused and suffered; none in class elastic
	LeasedSessions int            // sessions of an earlier server that may still run
	Used           share.Bytes    // device memory in use
	Peak           share.Bytes    // most device memory in use since the container was added, at most that of the share
	IdleOnly       bool           // it gets only the time that others leave, see Container.Reshape
	Parked         bool           // all of its memory but Kept has been taken back, see Container.Park
	Kept           share.Bytes    // device memory that its processes may hold now: all of its share unless it is parked
	CurrentSMLimit share.PerMille // below SMLimit after a Resize
	CurrentSMs     share.PerMille // SMs that its latest token is worth
	Blocks         int64          // blocks of its latest token, in class elastic
	Running        bool           // a process runs under a token
	Waiting        int            // number of processes that wait for a token
	SelfPaced      int            // number of its processes that do not follow the server, but pace themselves
	Processes      []ProcessStatus
}

// ProcessStatus is the state of one process on a vGPU.
type ProcessStatus struct {
	PID      int
	Launches uint64
	Memory   share.Bytes
	Running  bool
	Waiting  bool
}

// loadBytes reads an amount of memory that processes write. A negative amount, from a race of two processes or a forged value, counts as 0.
func loadBytes(word *atomic.Uint64) share.Bytes { return max(0, share.Bytes(word.Load())) }

// usage counts the device time, launches, tokens and waits of a vGPU since it joined its slice.
type usage struct {
	recent   recentUse
	busy     time.Duration
	launches uint64
	tokens   uint64
	waits    Waits
}

func (u *usage) add(now time.Duration, w work) {
	u.recent.add(now, w.busy)
	u.busy += w.busy
	u.launches += w.launches
}

const meterSlots = 10

// recentUse sums up the device time used in the last second, in slots of a tenth of a second.
type recentUse struct {
	slots [meterSlots]time.Duration
	last  int64 // number of the latest slot, counted from the clock's zero
}

func (m *recentUse) add(now, used time.Duration) {
	m.advance(now)
	m.slots[m.last%meterSlots] += used
}

// total returns the device time used in the last second.
func (m *recentUse) total(now time.Duration) (sum time.Duration) {
	m.advance(now)
	for _, used := range m.slots {
		sum += used
	}
	return min(sum, time.Second)
}

// advance clears the slots of a tenth of a second that began since the last call.
func (m *recentUse) advance(now time.Duration) {
	tenth := int64(now / (time.Second / meterSlots))
	m.last = max(m.last, tenth-meterSlots)
	for m.last < tenth {
		m.last++
		m.slots[m.last%meterSlots] = 0
	}
}

// WaitBounds are the upper bounds of the buckets of the Waits histogram. The last bucket is unbounded.
var WaitBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// Waits is a histogram of how long processes waited for a token: from when the server learned of the wait until it let the process run.
type Waits struct {
	Buckets [len(WaitBounds) + 1]uint64 // not cumulative
	Count   uint64
	Sum     time.Duration
	Stalls  uint64 // waits longer than a window, in which every share receives its quota
}

func (w *Waits) add(wait, window time.Duration) {
	bucket := 0
	for bucket < len(WaitBounds) && wait > WaitBounds[bucket] {
		bucket++
	}
	w.Buckets[bucket]++
	w.Count++
	w.Sum += wait
	if wait > window {
		w.Stalls++
	}
}
