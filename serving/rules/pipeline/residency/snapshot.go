package residency

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// snapshotVersion is the version of the JSON of a snapshot.
const snapshotVersion = 1

// snapshot is a Node as JSON. Times are ages in nanoseconds, because the next process may have another clock. It contains neither requests
// nor wants, because those who have them report them again, and no measurements of use and lateness.
type snapshot struct {
	Version   int                `json:"version"`
	Turns     uint64             `json:"turns"` // number of turns begun so far
	Slices    []sliceSnapshot    `json:"slices"`
	Functions []functionSnapshot `json:"functions"`
}

type sliceSnapshot struct {
	ID     string        `json:"id"`
	Kind   pipeline.Kind `json:"kind"`
	Turn   string        `json:"turn"` // function that has the turn
	Number uint64        `json:"turnNumber"`
	Began  time.Duration `json:"turnNanos"` // time since the turn began
	Idle   time.Duration `json:"idleNanos"` // time since the last turn ended
	Stale  []string      `json:"staleTenants"`
}

// functionSnapshot has many fields: those of a Function, and those of its instance.
type functionSnapshot struct {
	Name     string                   `json:"name"`
	Tenant   string                   `json:"tenant"`
	Bound    string                   `json:"onlySlice"`
	Memory   share.Bytes              `json:"memoryBytes"`
	Times    map[string]time.Duration `json:"timesNanos"`
	LoadWarm time.Duration            `json:"loadWarmNanos"`
	LoadCold time.Duration            `json:"loadColdNanos"`

	Exists bool          `json:"instance"`
	Leaves bool          `json:"leaves"` // promoted: ends with its turn
	On     string        `json:"slice"`  // slice on which it is meant to be
	Host   bool          `json:"host"`   // its data is in host memory
	Age    time.Duration `json:"ageNanos"`
	Unused time.Duration `json:"unusedNanos"`

	Place  string        `json:"place"` // slice of which its process holds, or may hold, memory
	State  placeState    `json:"placeState"`
	Failed int           `json:"failedLoads"`
	Pause  time.Duration `json:"pauseNanos"` // time until it may be loaded again
}

// Snapshot returns the state of the node as JSON, for Restore.
func (n *Node) Snapshot() []byte {
	out := snapshot{Version: snapshotVersion, Turns: n.turns, Slices: []sliceSnapshot{}, Functions: []functionSnapshot{}}
	for _, s := range n.slices {
		in := sliceSnapshot{ID: s.ID, Kind: s.Kind, Idle: n.now - s.ended, Stale: append([]string{}, s.stale...)}
		if s.running != nil {
			in.Turn, in.Number, in.Began = s.running.Name, s.turn, n.now-s.started
		}
		out.Slices = append(out.Slices, in)
	}
	for _, f := range n.order {
		in := functionSnapshot{
			Name: f.Name, Tenant: f.Tenant, Bound: f.Slice, Memory: f.Memory, Times: f.Times, LoadWarm: f.LoadWarm, LoadCold: f.LoadCold,
			Exists: f.exists, Leaves: f.terminating, Host: n.host.has(f), Age: n.now - f.since, Unused: n.now - f.used,
			State: f.place.state, Failed: f.place.failed, Pause: max(0, f.place.retry-n.now),
		}
		if f.on != nil {
			in.On = f.on.ID
		}
		if f.place.slice != nil {
			in.Place = f.place.slice.ID
		}
		out.Functions = append(out.Functions, in)
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // unreachable: strings, numbers and booleans only
	}
	return text
}

// Restore returns the node that an earlier process recorded in its last Snapshot. Functions that were being loaded or evicted then are now evicted
// by Steps, because it is unknown how far that has come. Turns go on, because requests may have begun in them: the caller ends each with FinishTurn
// when it knows that no request is left. Report functions whose process has ended in the meantime with Ended, before calling Steps. The error says
// what is wrong with a snapshot that is inconsistent or of another version.
func Restore(p Policy, now time.Duration, text []byte) (*Node, error) {
	n, err := restore(p, now, text)
	if err != nil {
		return nil, fmt.Errorf("restore the functions that share slices: %w", err)
	}
	return n, nil
}

func restore(p Policy, now time.Duration, text []byte) (*Node, error) {
	in, err := decodeSnapshot(text)
	if err != nil {
		return nil, err
	}
	n, err := New(p)
	if err != nil {
		return nil, err
	}
	n.advanceClock(now)
	n.turns = in.Turns
	for _, s := range in.Slices {
		if err := n.restoreSlice(s); err != nil {
			return nil, err
		}
	}
	for _, f := range in.Functions {
		if err := n.restoreFunction(f); err != nil {
			return nil, share.Invalid("functions", "%.64q: %v", f.Name, err)
		}
	}
	for _, s := range in.Slices {
		if err := n.restoreTurn(s); err != nil {
			return nil, share.Invalid("slices", "%.64q: %v", s.ID, err)
		}
	}
	return n, nil
}
