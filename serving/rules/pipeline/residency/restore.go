package residency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// decodeSnapshot parses JSON that has exactly the fields of a snapshot. If a missing or misspelled field were read as empty, the node would
// forget what is on a slice.
func decodeSnapshot(text []byte) (*snapshot, error) {
	var header struct{ Version int }
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, err
	}
	if header.Version != snapshotVersion {
		return nil, share.Invalid("version", "%d is not supported, only version %d is", header.Version, snapshotVersion)
	}
	var in snapshot
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	again, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var given, understood any
	if err := json.Unmarshal(text, &given); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(again, &understood); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(given, understood) {
		return nil, fmt.Errorf("fields are missing, null or misspelled: it reads as %.300s", again)
	}
	return &in, nil
}

// before returns the time that lies ago before now. The error is a *share.FieldError if no clock could have shown that time.
func (n *Node) before(field string, ago time.Duration) (time.Duration, error) {
	if ago < 0 || ago > 2*maxInstant {
		return 0, share.Invalid(field, "%v is outside 0 to %v", ago, 2*maxInstant)
	}
	return n.now - ago, nil
}

// maxStale bounds the number of tenants whose data may be left on a slice.
const maxStale = 10_000

func (n *Node) restoreSlice(in sliceSnapshot) error {
	if err := n.AddSlice(n.now, pipeline.Slice{ID: in.ID, Kind: in.Kind}); err != nil {
		return err
	}
	if len(in.Stale) > maxStale {
		return share.Invalid("staleTenants", "%d are more than %d", len(in.Stale), maxStale)
	}
	s := n.findSlice(in.ID)
	ended, err := n.before("idleNanos", in.Idle)
	s.ended, s.stale = ended, in.Stale
	return err
}

func (n *Node) restoreFunction(in functionSnapshot) (err error) {
	err = n.Register(Function{Name: in.Name, Tenant: in.Tenant, Slice: in.Bound, Memory: in.Memory, Times: in.Times, LoadWarm: in.LoadWarm, LoadCold: in.LoadCold})
	if err != nil {
		return err
	}
	f := n.functions[in.Name]
	f.exists, f.terminating = in.Exists, in.Leaves
	if f.since, err = n.before("ageNanos", in.Age); err != nil {
		return err
	}
	if f.used, err = n.before("unusedNanos", in.Unused); err != nil {
		return err
	}
	if !in.Exists && (in.On != "" || in.Host || in.Leaves) {
		return share.Invalid("instance", "data are there, and there is no instance")
	}
	if in.On != "" {
		if err := n.restoreOn(f, in.On); err != nil {
			return err
		}
	}
	if in.Host {
		if f.on != nil {
			return share.Invalid("host", "the data are on slice %.64q, too", in.On)
		}
		n.host.add(f) // as far as today's limit allows
	}
	return n.restorePlace(f, in)
}

// restoreOn records the slice on which a function is meant to be.
func (n *Node) restoreOn(f *function, id string) error {
	s := n.findSlice(id)
	switch {
	case s == nil:
		return share.Invalid("slice", "there is no slice %.64q", id)
	case s.executionTime(f) == 0:
		return share.Invalid("slice", "the function cannot run on slice %.64q", id)
	case f.Memory > s.free:
		return share.Invalid("slice", "%d bytes exceed the %d that others leave of slice %.64q", f.Memory, s.free, id)
	}
	s.free -= f.Memory
	s.residents = append(s.residents, f)
	f.on = s
	return nil
}

// restorePlace records what the process of a function holds. Data that was being loaded or evicted is now evicted: it may be anywhere.
func (n *Node) restorePlace(f *function, in functionSnapshot) error {
	if in.Failed < 0 || in.Failed > maxStale || in.Pause < 0 || in.Pause > maxPause {
		return share.Invalid("failedLoads", "%d, the last one %v ago", in.Failed, in.Pause)
	}
	f.place.failed, f.place.retry = in.Failed, n.now+in.Pause
	if in.Place == "" && in.State == "" {
		return nil
	}
	s := n.findSlice(in.Place)
	if s == nil {
		return share.Invalid("place", "there is no slice %.64q", in.Place)
	}
	if held := n.heldOn(s); held+f.Memory > s.Kind.Memory {
		return share.Invalid("place", "%d bytes are on slice %.64q beside %d, and it has %d", f.Memory, in.Place, held, s.Kind.Memory)
	}
	f.place.slice, f.place.state = s, evicting
	switch in.State {
	case resident:
		f.place.state = resident
	case loading, evicting:
	default:
		return share.Invalid("placeState", "%.64q is unknown", in.State)
	}
	return nil
}

// restoreTurn gives a slice back to the function that had a turn on it. If the data was still being loaded, the turn has had no requests, and ends.
func (n *Node) restoreTurn(in sliceSnapshot) error {
	began, err := n.before("turnNanos", in.Began)
	if err != nil || in.Turn == "" {
		return err
	}
	s, f := n.findSlice(in.ID), n.functions[in.Turn]
	switch {
	case f == nil || f.on != s:
		return share.Invalid("turn", "function %.64q is not on the slice", in.Turn)
	case in.Number > n.turns:
		return share.Invalid("turnNumber", "%d is above %d", in.Number, n.turns)
	}
	if f.place.slice == s && f.place.state == resident {
		f.running, s.running, s.turn, s.started, s.loaded, s.until = true, f, in.Number, began, began, n.now
		return nil
	}
	if f.terminating {
		n.deleteInstance(f)
		return nil
	}
	n.evict(f)
	return nil
}
