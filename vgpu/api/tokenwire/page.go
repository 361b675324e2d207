package tokenwire

import (
	"sync/atomic"
	"time"
)

// PageSize is the size in bytes of each page of memory that the token server and its clients share.
const PageSize = 4096

const pageMagic = 0x47505347

// The range of a container's lock file in which each process without a session locks one byte for reading.
const (
	UnservedStart  = 0x1200000000
	UnservedLength = 0x100000
)

// State is the value in a server page that instructs the process to run, pause, drain or pass calls through.
type State uint32

// The states of a server page.
const (
	Run   State = 1 // the process may launch
	Pause State = 2 // the process waits on Wake
	Drain State = 3 // the process finishes its work and starts no more
	Off   State = 4 // the hook passes all calls through
)

// String returns the name of the state in lower case, for logs.
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

// The units of a token's amount.
const (
	UnitTime   uint32 = 0 // ns
	UnitBlocks uint32 = 1 // thread blocks
)

// PageHead is the magic number and version at the beginning of every shared page.
type PageHead struct {
	Magic        uint32
	Major, Minor uint16
}

// NewPageHead returns the head of a shared page of this protocol version.
func NewPageHead() PageHead { return PageHead{pageMagic, Major, Minor} }

// Valid reports whether the page has the magic number and a major version that this package can read.
func (h PageHead) Valid() bool { return h.Magic == pageMagic && h.Major == Major }

// ServerPage is the page of shared memory that the token server alone writes and one process maps read-only, for one vGPU. Its fields are
// the layout of the page. Times are nanoseconds of CLOCK_MONOTONIC, and durations nanoseconds.
type ServerPage struct {
	PageHead
	Generation atomic.Uint32 // changes with state, amount or limits
	State      atomic.Uint32 // a State
	_          [12]uint32

	Sequence   atomic.Uint64 // counts tokens
	Amount     atomic.Uint64 // ns or blocks
	Deadline   atomic.Uint64 // time of the next pause or block token; a hint
	Window     atomic.Uint64 // ns
	RunAhead   atomic.Uint64 // ns of unfinished work that may be queued on the device
	Unit       atomic.Uint32 // UnitTime or UnitBlocks
	Guaranteed atomic.Uint32 // per-mille of every window, for pacing without a server
	PartStart  atomic.Uint64 // time at which that part of one of the windows begins; 0: not stated. Since minor version 3
	_          uint64

	MemoryLimit atomic.Uint64 // bytes
	Policy      atomic.Uint32
	_           uint32
	// ImportAllowance is the bytes of the model store's memory that the container may map beside its limit. Since minor version 2.
	ImportAllowance atomic.Uint64
	_               [10]uint32

	Wake      atomic.Uint32 // futex word
	_         uint32
	Heartbeat atomic.Uint64 // time of the server's latest heartbeat
	_         [6]uint64

	// Credit is the total of thread blocks that the container may have taken. It decreases when a token is cut. Since minor version 1.
	Credit atomic.Uint64
	_      [7]uint64
}

// SetState stores the state and then increments the generation, by which clients notice the change.
func (p *ServerPage) SetState(s State) {
	p.State.Store(uint32(s))
	p.Generation.Add(1)
}

// SetHeartbeat stores the time, on CLOCK_MONOTONIC, at which the server was last alive.
func (p *ServerPage) SetHeartbeat(now time.Duration) { p.Heartbeat.Store(uint64(now)) }

// ContainerPage is the page of shared memory with the totals of all processes of one container for one vGPU. The server and the processes
// write it.
type ContainerPage struct {
	PageHead
	_        [14]uint32
	Memory   atomic.Uint64 // bytes that all processes hold
	Imported atomic.Uint64 // bytes of the allowance that all processes use; since minor version 2
	_        [6]uint64

	Taken atomic.Uint64 // total of thread blocks that all processes have taken from Credit; since minor version 1
	_     [7]uint64
}

// ClientPage is the page of shared memory in which one process reports its use of one vGPU. The server treats the values as hints. Its
// fields are the layout of the page.
type ClientPage struct {
	PageHead
	_            [14]uint32
	Launches     atomic.Uint64
	Blocks       atomic.Uint64
	Busy         atomic.Uint64 // ns of device time, settled
	Open         atomic.Uint64 // ns estimated, launched but not settled
	LastLaunch   atomic.Uint64
	Waiting      atomic.Uint32 // threads that wait for a token
	SelfPaced    atomic.Uint32 // 1: it does not follow the server but paces itself; since minor version 3
	WaitingSince atomic.Uint64
	_            uint64

	Memory    atomic.Uint64 // bytes that this process holds
	Captures  atomic.Uint32
	Uncovered atomic.Uint32
	Refused   atomic.Uint64
	Imported  atomic.Uint64 // bytes of the allowance that this process uses; since minor version 2
	_         [4]uint64

	// Launch cycles, since minor version 1: from the first launch of a batch until the host has waited for it.
	Cycles     atomic.Uint64 // number of ended cycles
	CycleStart atomic.Uint64 // start of the open one; 0 if there is none
	_          [6]uint64
	CycleTimes [CyclesShown]atomic.Uint64 // ns of the latest ones; cycle n, counted from 0, is at index n % CyclesShown
}

// CyclesShown is the number of launch cycles whose durations a client page holds, the latest ones. A launch cycle lasts from the first
// launch of a batch until the host has waited for it.
const CyclesShown = 8
