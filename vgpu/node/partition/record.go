package partition

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/node/versioned"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const version = 1

// record is what the journal of a GPU holds.
type record struct {
	Version int     `json:"version"`
	Boot    string  `json:"boot"`   // no instance outlives the boot it was made in
	Device  string  `json:"device"` // UUID
	Made    []place `json:"made"`   // the GPU instances that gshare created
	Intent  *intent `json:"intent"` // the step under way; null: none
}

// place names a GPU instance: no two that exist overlap.
type place struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
}

type intent struct {
	Action geometry.Action `json:"action"`
	place
}

func placeOf(i mig.Instance) place { return place{i.Profile.Name, i.Start} }

// intend is the record before a step.
func (r record) intend(s geometry.Step) record {
	r.Intent = &intent{s.Action, placeOf(s.Instance)}
	return r
}

// done is the record after the step that was intended.
func (r record) done() record {
	p := r.Intent.place
	made := slices.DeleteFunc(slices.Clone(r.Made), func(o place) bool { return o == p })
	if r.Intent.Action != geometry.DestroyGPU {
		made = append(made, p)
	}
	r.Made, r.Intent = made, nil
	return r
}

// settle is the record after a look at the device: of what gshare made or was about to make, what is there. What others made
// in the very same place since, after a reset without a reboot, passes for gshare's.
func (r record) settle(found []Instance) record {
	there := func(p place) bool {
		return slices.ContainsFunc(found, func(i Instance) bool { return placeOf(i.Instance) == p })
	}
	made := slices.Clone(r.Made)
	if r.Intent != nil && r.Intent.Action == geometry.CreateGPU {
		made = append(made, r.Intent.place)
	}
	r.Made, r.Intent = slices.DeleteFunc(made, func(p place) bool { return !there(p) }), nil
	return r
}

func (r record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and integers only
	}
	return append(text, '\n')
}

// parse decodes a record, and refuses one of another version.
func parse(text []byte) (r record, err error) {
	if err := versioned.Decode(text, version, &r); err != nil {
		return r, err
	}
	return r, r.validate()
}

func (r record) validate() error {
	if r.Boot == "" || r.Device == "" {
		return fmt.Errorf("no boot or no device")
	}
	for n, p := range r.Made {
		if slices.Contains(r.Made[:n], p) {
			return fmt.Errorf("%s at %d is there twice", p.Profile, p.Start)
		}
		if err := p.validate(); err != nil {
			return err
		}
	}
	return r.Intent.validate()
}

func (p place) validate() error {
	if !share.ValidProfile(p.Profile) || p.Start < 0 || p.Start > 7 {
		return fmt.Errorf("no instance can be %.64q at %d", p.Profile, p.Start)
	}
	return nil
}

func (i *intent) validate() error {
	if i == nil {
		return nil
	}
	if !slices.Contains(geometry.Actions, i.Action) {
		return fmt.Errorf("no action is called %.64q", i.Action)
	}
	return i.place.validate()
}
