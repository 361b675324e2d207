package standalone

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// recordName is the name of the file with a run's record, in the run's directory.
const recordName = "run.json"

// recordSuffix follows the ID of a run in the name of the second copy of its record.
const recordSuffix = ".json"

// recordVersion is the version of the records of runs on disk. Records of other versions are refused.
const recordVersion = 1

// record is what an agent saves about a run, so that a later agent can restore it. Later agents must be able to read it: see
// testdata/run.json. It has many fields because it is one flat file.
type record struct {
	Version     int                       `json:"version"`
	ID          string                    `json:"id"`
	Name        string                    `json:"name,omitempty"`
	UID         uint32                    `json:"uid"`
	PID         int                       `json:"pid"`       // of the process that asked for the run and becomes the program
	StartTime   uint64                    `json:"startTime"` // of that process, in ticks since boot: PIDs are reused
	Started     time.Time                 `json:"started"`
	Devices     []string                  `json:"devices"` // UUID of each vGPU's device
	Class       share.Isolation           `json:"class"`
	Priority    share.Priority            `json:"priority"`
	Share       savedShare                `json:"share"`             // of each device
	SMLimit     share.PerMille            `json:"smLimit,omitempty"` // set by SetLimit; 0: that of the share
	Quota       share.PerMille            `json:"quota,omitempty"`   // set by SetLimit; 0: that of the share
	Cgroup      string                    `json:"cgroup,omitempty"`
	MemoryLimit share.Bytes               `json:"driverLimit,omitempty"` // device memory limit that the driver has confirmed; 0: none
	Enforcement control.EnforcementStatus `json:"enforcement"`
}

// savedShare is a share.Share with JSON names that do not change when a Go field is renamed.
type savedShare struct {
	SMRequest    share.PerMille `json:"sm"`
	SMLimit      share.PerMille `json:"smLimit"`
	QuotaRequest share.PerMille `json:"quota"`
	QuotaLimit   share.PerMille `json:"quotaLimit"`
	Memory       share.Bytes    `json:"memory"`
}

// request returns the share of a run as a request for whole GPUs. The devices themselves are in the record.
func (r *record) request() share.Request {
	return share.Request{
		Terms:      share.Terms{Isolation: r.Class, Priority: r.Priority, Slice: share.WholeGPU, Enforcement: share.Strict},
		Containers: []share.Container{{Name: "run", VGPUs: len(r.Devices), Share: share.Share(r.Share)}},
	}
}

// decodeRecord parses the record of a run. It returns an error for other versions, and for shares that no agent admits.
func decodeRecord(text []byte) (r record, err error) {
	if err := versioned.Decode(text, recordVersion, &r); err != nil {
		return record{}, fmt.Errorf("decode run: %w", err)
	}
	err = r.request().Validate()
	if err == nil {
		err = r.validate()
	}
	if err != nil {
		return record{}, fmt.Errorf("decode run: %w", err)
	}
	return r, nil
}

// validate returns an error for what an agent writes in no record, apart from the share: it must not be taken for a run that has ended, or for
// one on other devices.
func (r *record) validate() error {
	devices := slices.Sorted(slices.Values(r.Devices))
	switch {
	case r.PID <= 0:
		return fmt.Errorf("%d is no PID", r.PID)
	case devices[0] == "" || len(slices.Compact(devices)) < len(r.Devices):
		return fmt.Errorf("devices %.100q are not as many", r.Devices)
	case r.SMLimit != 0 && (r.SMLimit < r.Share.SMRequest || r.SMLimit > r.Share.SMLimit):
		return fmt.Errorf("an SM limit of %d does not fit the share", r.SMLimit)
	case r.Quota < 0 || r.Quota > r.Share.QuotaRequest:
		return fmt.Errorf("a quota of %d does not fit the share", r.Quota)
	case r.MemoryLimit < 0:
		return fmt.Errorf("a memory limit of %d", r.MemoryLimit)
	case r.Cgroup != "" && (path.Clean(r.Cgroup) != r.Cgroup || !path.IsAbs(r.Cgroup) || path.Base(r.Cgroup) != groupName(r.ID)):
		return fmt.Errorf("%.100q is not the cgroup of the run", r.Cgroup)
	}
	return nil
}
