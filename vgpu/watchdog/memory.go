package watchdog

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MemoryUse is the device memory of a container with a share, on one slice, as counted by the hook and by the driver.
type MemoryUse struct {
	Pod, Container, Slice string
	Granted               share.Bytes
	Ledger                share.Bytes // what the hook counts for all its processes, which can forge it
	Context               share.Bytes // what each process may have for its contexts and their code, which only the driver counts
	BestEffort            bool        // its processes are never killed
	Weights               share.Bytes // in the model store, which the container may map without being charged
	Processes             []ProcessMemory
}

// ProcessMemory is the device memory of one process on a slice.
type ProcessMemory struct {
	PID       int
	StartTime uint64
	Driver    share.Bytes // what the driver counts, contexts included; 0 if it does not tell
	Ledger    share.Bytes // what the hook counts; 0 without a session
}

// DriverTotal returns the memory that the driver counts for all processes of the container, their contexts included.
func (u MemoryUse) DriverTotal() (sum share.Bytes) {
	for _, p := range u.Processes {
		sum += p.Driver
	}
	return sum
}

// beyondAllowance returns the memory that the driver counts for these processes beyond two allowances of each: what it may have for its
// contexts, and the weights, which the driver may count again for each process that maps them.
func (u MemoryUse) beyondAllowance(processes []ProcessMemory) (sum share.Bytes) {
	for _, p := range processes {
		sum += max(0, p.Driver-u.Context-u.Weights)
	}
	return sum
}

// Uncounted returns how much memory the driver counts beyond the ledger and the allowances of each process.
func (u MemoryUse) Uncounted() share.Bytes {
	return max(0, u.beyondAllowance(u.Processes)-u.Ledger)
}

// excess says which bound the driver's count of a container's memory exceeds.
type excess int

const (
	noExcess excess = iota
	beyondLedger
	beyondShare
)

// excessKinds maps excesses to the kinds of their findings.
var excessKinds = map[excess]Kind{beyondLedger: Uncounted, beyondShare: Overdrawn}

// excess compares the driver's count with the share and with the ledger. To find that the share is exceeded it does not rely on the ledger,
// which the processes can forge.
func (u MemoryUse) excess() excess {
	switch beyond := u.beyondAllowance(u.Processes); {
	case beyond > u.Granted:
		return beyondShare
	case beyond > u.Ledger:
		return beyondLedger
	}
	return noExcess
}

// MemoryWatch compares how much memory of each container the driver counts with the hook's count and with the share, and decides which
// differences to report and which processes to kill. It is not safe for concurrent use.
//
// One observation alone shows nothing: the two counts are taken at different times, and the driver reads one process after another. So an
// excess begins to count with the second observation in a row that shows it, and ceases with the second in a row that does not.
type MemoryWatch struct {
	config   Config
	seen     map[memoryKey]memoryState
	reported map[reportKey]time.Time
}

// memoryKey identifies a container on a slice across observations.
type memoryKey struct{ pod, container, slice string }

// memoryState is what a MemoryWatch remembers about the memory of a container on a slice.
type memoryState struct {
	last, confirmed excess // what the last observation shows; what two in a row have confirmed
	since           time.Time
	shown           MemoryCounts
	killed          map[processKey]time.Time // when it was decided to kill them
}

// MemoryCounts holds what the driver and the hook count for a container on a slice, its share, and what each process may have for its
// contexts. To keep reports from changing with each observation, the counts stay those of the observation that confirmed the excess until
// the driver's count grows by more than an eighth.
type MemoryCounts struct{ Driver, Ledger, Granted, Context share.Bytes }

// NewMemoryWatch returns a MemoryWatch without any observations.
func NewMemoryWatch(c Config) *MemoryWatch {
	return &MemoryWatch{config: c, seen: map[memoryKey]memoryState{}, reported: map[reportKey]time.Time{}}
}

// Observe returns the containers whose memory exceeds their ledger or their share, each with the process that has the most memory beyond
// its own ledger. It forgets containers that are not in the list. now must not decrease from call to call.
func (w *MemoryWatch) Observe(now time.Time, uses []MemoryUse) (found []Finding) {
	maps.DeleteFunc(w.reported, func(_ reportKey, at time.Time) bool { return now.Sub(at) >= w.config.Repeat })
	before := w.seen
	w.seen = map[memoryKey]memoryState{}
	for _, u := range uses {
		k := memoryKey{u.Pod, u.Container, u.Slice}
		s := w.next(before[k], u, now)
		if s.confirmed != noExcess && len(u.Processes) > 0 {
			found = append(found, w.finding(now, u, &s))
		}
		w.seen[k] = s
	}
	return found
}

// next returns the state after one more observation of a container.
func (w *MemoryWatch) next(s memoryState, u MemoryUse, now time.Time) memoryState {
	seen, before := u.excess(), s.confirmed
	s.confirmed = max(min(s.last, seen), min(max(s.last, seen), s.confirmed))
	s.last = seen
	total := u.DriverTotal()
	if s.confirmed != before {
		s.since = now
	}
	if s.confirmed != before || total > s.shown.Driver+s.shown.Driver/8 {
		s.shown = MemoryCounts{total, u.Ledger, u.Granted, u.Context}
	}
	return s
}

// finding returns the Finding for a confirmed excess, and records that it was reported and which process is to be killed. Until a process
// that was chosen for a kill is gone, or Config.Retry has passed, its memory is no reason to kill another.
func (w *MemoryWatch) finding(now time.Time, u MemoryUse, s *memoryState) Finding {
	maps.DeleteFunc(s.killed, func(_ processKey, at time.Time) bool { return now.Sub(at) >= w.config.Retry })
	left := slices.DeleteFunc(slices.Clone(u.Processes), func(p ProcessMemory) bool {
		_, killed := s.killed[processKey{p.PID, p.StartTime, u.Slice}]
		return killed
	})
	kill := w.config.Kill && !u.BestEffort && s.confirmed == beyondShare && u.beyondAllowance(left) > u.Granted
	if !kill {
		left = u.Processes
	}
	p := slices.MaxFunc(left, func(a, b ProcessMemory) int {
		return cmp.Or(cmp.Compare(a.Driver-a.Ledger, b.Driver-b.Ledger), -cmp.Compare(a.PID, b.PID))
	})
	f := Finding{
		Process: Process{PID: p.PID, StartTime: p.StartTime, Slice: u.Slice, Pod: u.Pod, Container: u.Container, Memory: p.Driver},
		Kind:    excessKinds[s.confirmed], Since: s.since, Kill: kill, Counts: s.shown,
	}
	about := reportKey{u.Pod, f.Kind}
	if _, reported := w.reported[about]; !reported {
		f.Report = true
		w.reported[about] = now
	}
	if kill {
		if s.killed == nil {
			s.killed = map[processKey]time.Time{}
		}
		s.killed[processKey{p.PID, p.StartTime, u.Slice}] = now
	}
	return f
}
