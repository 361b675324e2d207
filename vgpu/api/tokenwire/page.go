package tokenwire

import (
	"sync/atomic"
	"time"
)

// PageSize is the size of each shared page; the layouts fill its beginning.
const PageSize = 4096

const pageMagic = 0x47505347

// State is what a server page tells its process to do.
type State uint32

// The states of a server page.
const (
	Run   State = 1 // launch
	Pause State = 2 // wait on Wake
	Drain State = 3 // finish, start nothing
	Off   State = 4 // pass everything through
)

// String names the state for logs.
func (s State) String() string {
	switch s {
	case Run:
		return "run"
	case Pause:
		return "pause"
	case Drain:
		return "drain"
	case Off:
		return "off"
	}
	return "unknown"
}

// What the amount of a token counts.
const (
	UnitTime   uint32 = 0 // ns
	UnitBlocks uint32 = 1 // thread blocks
)

// PageHead begins every page.
type PageHead struct {
	Magic        uint32
	Major, Minor uint16
}

// NewPageHead is the head of pages of this version.
func NewPageHead() PageHead { return PageHead{pageMagic, Major, Minor} }

// Valid says that the page is laid out as this package knows it.
func (h PageHead) Valid() bool { return h.Magic == pageMagic && h.Major == Major }

// ServerPage is written by the server alone and mapped read-only by one process for one vGPU. Times are nanoseconds of
// CLOCK_MONOTONIC, quantities of time nanoseconds.
type ServerPage struct {
	PageHead
	Generation atomic.Uint32 // changes with state, amount or limits
	State      atomic.Uint32 // a State
	_          [12]uint32

	Sequence   atomic.Uint64 // counts tokens
	Amount     atomic.Uint64 // ns or blocks
	Deadline   atomic.Uint64 // when the server will pause, or give the next blocks; a hint
	Window     atomic.Uint64 // ns
	RunAhead   atomic.Uint64 // ns of unfinished work that may be queued on the device
	Unit       atomic.Uint32 // UnitTime or UnitBlocks
	Guaranteed atomic.Uint32 // per-mille of every window, for pacing without a server
	_          [2]uint64

	MemoryLimit atomic.Uint64 // bytes
	Policy      atomic.Uint32
	_           [13]uint32

	Wake      atomic.Uint32 // futex word
	_         uint32
	Heartbeat atomic.Uint64 // the server's last sign of life
	_         [6]uint64

	// Credit is the thread blocks that the container may have taken in all. It falls where a token is cut. Since minor version 1.
	Credit atomic.Uint64
	_      [7]uint64
}

// SetState changes the state and then the generation, by which a client notices.
func (p *ServerPage) SetState(s State) {
	p.State.Store(uint32(s))
	p.Generation.Add(1)
}

// SetHeartbeat writes a sign of life.
func (p *ServerPage) SetHeartbeat(now time.Duration) { p.Heartbeat.Store(uint64(now)) }

// ContainerPage is shared by the processes of one container and the server, for one vGPU.
type ContainerPage struct {
	PageHead
	_      [14]uint32
	Memory atomic.Uint64 // bytes reserved by all processes
	_      [7]uint64

	Taken atomic.Uint64 // thread blocks of Credit that all processes have taken; since minor version 1
	_     [7]uint64
}

// ClientPage is written by one process and read by the server as a hint, for one vGPU.
type ClientPage struct {
	PageHead
	_            [14]uint32
	Launches     atomic.Uint64
	Blocks       atomic.Uint64
	Busy         atomic.Uint64 // ns of device time, settled
	Open         atomic.Uint64 // ns estimated, launched but not settled
	LastLaunch   atomic.Uint64
	Waiting      atomic.Uint32 // threads that wait for a token
	_            uint32
	WaitingSince atomic.Uint64
	_            uint64

	Memory    atomic.Uint64 // bytes that this process holds
	Captures  atomic.Uint32
	Uncovered atomic.Uint32
	Refused   atomic.Uint64
	_         [5]uint64

	// Launch cycles, since minor version 1: of one the host waits for, from its first launch until the wait returns.
	Cycles     atomic.Uint64 // that have ended
	CycleStart atomic.Uint64 // of the open one; 0: none is
	_          [6]uint64
	CycleTimes [CyclesShown]atomic.Uint64 // ns of the latest; cycle n, counted from 0, at n modulo their number
}

// CyclesShown is how many launch cycles a client page shows at a time.
const CyclesShown = 8
