package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// recordVersion is the version of the format of a GPU's journal.
const recordVersion = 1

// record is the content of a GPU's journal: the MIG instances that gshare created, and the step that is being executed.
type record struct {
	Version int         `json:"version"`
	Boot    string      `json:"boot"`   // BootID: instances do not survive a reboot
	Device  string      `json:"device"` // UUID of the GPU
	Made    []placement `json:"made"`   // GPU instances that gshare created
	Intent  *intent     `json:"intent"` // step that is being executed; null: none
}

// placement is the position of a GPU instance: its profile and first memory slice. It identifies the instance, since existing ones never
// overlap.
type placement struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
}

// intent is a step, the creation or destruction of an instance, that may or may not have been executed.
type intent struct {
	Action geometry.Action `json:"action"`
	placement
}

func placementOf(i mig.Instance) placement { return placement{i.Profile.Name, i.Start} }

// withIntent returns the journal record to write before a step is executed, which contains the step.
func (r record) withIntent(s geometry.Step) record {
	r.Intent = &intent{s.Action, placementOf(s.Instance)}
	return r
}

// completed returns the journal record to write after the step that it contains was executed.
func (r record) completed() record {
	p := r.Intent.placement
	made := slices.DeleteFunc(slices.Clone(r.Made), func(o placement) bool { return o == p })
	if r.Intent.Action != geometry.DestroyGPU {
		made = append(made, p)
	}
	r.Made, r.Intent = made, nil
	return r
}

// reconciled returns the journal record without instances that no longer exist, and with the instance whose creation was in progress, if it
// exists. An instance that others created at the same placement after a reset without a reboot counts as gshare's.
func (r record) reconciled(found []Instance) record {
	exists := func(p placement) bool {
		return slices.ContainsFunc(found, func(i Instance) bool { return placementOf(i.Instance) == p })
	}
	made := slices.Clone(r.Made)
	if r.Intent != nil && r.Intent.Action == geometry.CreateGPU {
		made = append(made, r.Intent.placement)
	}
	r.Made, r.Intent = slices.DeleteFunc(made, func(p placement) bool { return !exists(p) }), nil
	return r
}

func (r record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // impossible: the record has only strings and integers
	}
	return append(text, '\n')
}

// parseRecord parses and validates a journal record. It rejects records of other versions.
func parseRecord(text []byte) (r record, err error) {
	if err := versioned.Decode(text, recordVersion, &r); err != nil {
		return r, err
	}
	return r, r.validate()
}

func (r record) validate() error {
	if r.Boot == "" || r.Device == "" {
		return fmt.Errorf("boot or device is missing")
	}
	for n, p := range r.Made {
		if slices.Contains(r.Made[:n], p) {
			return fmt.Errorf("duplicate instance %s at %d", p.Profile, p.Start)
		}
		if err := p.validate(); err != nil {
			return err
		}
	}
	return r.Intent.validate()
}

func (p placement) validate() error {
	if !share.ValidProfile(p.Profile) || p.Start < 0 || p.Start > 7 {
		return fmt.Errorf("invalid instance %.64q at %d", p.Profile, p.Start)
	}
	return nil
}

func (i *intent) validate() error {
	if i == nil {
		return nil
	}
	if !slices.Contains(geometry.Actions, i.Action) {
		return fmt.Errorf("unknown action %.64q", i.Action)
	}
	return i.placement.validate()
}

// Store stores the journal of one GPU. When Save returns, the text survives a power failure. After an error, Load returns the old text or
// the new one, never a mixture.
type Store interface {
	Load() ([]byte, error) // nil if nothing was saved
	Save(text []byte) error
}

// File is a Store that keeps a journal in the file of this name.
type File string

// JournalFile returns the file for the journal of a GPU in a directory.
func JournalFile(dir, uuid string) File {
	return File(filepath.Join(dir, "mig-"+filepath.Base(uuid)+".json"))
}

// JournalGPU returns the UUID of the GPU whose journal has the given file name, and whether it is the name of a journal.
func JournalGPU(name string) (uuid string, ok bool) {
	uuid, mig := strings.CutPrefix(name, "mig-")
	uuid, json := strings.CutSuffix(uuid, ".json")
	return uuid, mig && json
}

// Load returns the content of the file, or nil if it does not exist.
func (f File) Load() ([]byte, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Save replaces the content of the file atomically.
func (f File) Save(text []byte) error { return atomicfile.WriteFile(string(f), text, 0o600) }

// BootID returns the kernel's identifier of the current boot.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
