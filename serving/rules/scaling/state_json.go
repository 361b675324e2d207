package scaling

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// stateVersion is the version of the JSON of a State.
const stateVersion = 1

// stateJSON is a State as JSON. Times are in nanoseconds; a reader in another process needs to know the time from which they count.
type stateJSON struct {
	Version   int            `json:"version"`
	LastID    ID             `json:"lastID"`
	Samples   []sampleJSON   `json:"samples"`
	Instances []instanceJSON `json:"instances"`
}

type sampleJSON struct {
	At   time.Duration `json:"atNanos"`
	Load Rate          `json:"requestsPerSecond"`
}

type instanceJSON struct {
	ID            ID                `json:"id"`
	Residency     string            `json:"residency"`
	Since         time.Duration     `json:"sinceNanos"`
	Configuration configurationJSON `json:"configuration"`
}

// configurationJSON is a Configuration as JSON. Fractions of a slice are in per-mille.
type configurationJSON struct {
	SMRequest    share.PerMille `json:"smRequest"`
	SMLimit      share.PerMille `json:"smLimit"`
	QuotaRequest share.PerMille `json:"quotaRequest"`
	QuotaLimit   share.PerMille `json:"quotaLimit"`
	Memory       share.Bytes    `json:"memoryBytes"`
	Batch        int            `json:"batch"`
	Throughput   Rate           `json:"requestsPerSecond"`
}

// MarshalJSON returns the state as versioned JSON, for the process that makes the next decision. It returns a *share.FieldError for a
// state that Scaler.Decide does not accept.
func (s State) MarshalJSON() ([]byte, error) {
	if err := s.validate(math.MaxInt64); err != nil {
		return nil, err
	}
	out := stateJSON{Version: stateVersion, LastID: s.LastID, Samples: []sampleJSON{}, Instances: []instanceJSON{}}
	for _, sample := range s.Samples {
		out.Samples = append(out.Samples, sampleJSON(sample))
	}
	for _, i := range s.Instances {
		c := i.Configuration
		out.Instances = append(out.Instances, instanceJSON{i.ID, i.Residency.String(), i.Since, configurationJSON{
			c.Share.SMRequest, c.Share.SMLimit, c.Share.QuotaRequest, c.Share.QuotaLimit, c.Share.Memory, c.Batch, c.Throughput,
		}})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON has written. It returns an error for another version, for fields that are unknown, missing or
// misspelled, and for states that Scaler.Decide does not accept; s is then unchanged.
func (s *State) UnmarshalJSON(text []byte) error {
	var in stateJSON
	if err := decodeState(text, &in); err != nil {
		return fmt.Errorf("decode the state of an autoscaler: %w", err)
	}
	read := State{LastID: in.LastID}
	for _, sample := range in.Samples {
		read.Samples = append(read.Samples, Sample(sample))
	}
	for _, i := range in.Instances {
		c := i.Configuration
		read.Instances = append(read.Instances, Instance{
			ID: i.ID, Residency: residencyNamed(i.Residency), Since: i.Since, Configuration: Configuration{
				Share: share.Share{
					SMRequest: c.SMRequest, SMLimit: c.SMLimit, QuotaRequest: c.QuotaRequest, QuotaLimit: c.QuotaLimit, Memory: c.Memory,
				},
				Batch: c.Batch, Throughput: c.Throughput,
			},
		})
	}
	if err := read.validate(math.MaxInt64); err != nil {
		return fmt.Errorf("decode the state of an autoscaler: %w", err)
	}
	*s = read
	return nil
}

// decodeState parses JSON that has exactly the fields of stateJSON. If a missing or misspelled field were read as zero, the autoscaler
// would forget instances.
func decodeState(text []byte, into *stateJSON) error {
	var header struct{ Version int }
	if err := json.Unmarshal(text, &header); err != nil {
		return err
	}
	if header.Version != stateVersion {
		return fmt.Errorf("version %d is not supported, only version %d is", header.Version, stateVersion)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	again, err := json.Marshal(into)
	if err != nil {
		return err
	}
	var given, understood any
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	if err := json.Unmarshal(again, &understood); err != nil {
		return err
	}
	if !reflect.DeepEqual(given, understood) {
		return fmt.Errorf("fields are missing, null or misspelled: it reads as %.300s", again)
	}
	return nil
}

// residencyNamed returns the residency with the given name, or an invalid one if there is none.
func residencyNamed(name string) Residency {
	serving := []Residency{Hot, Shared, Warm}
	if at := slices.IndexFunc(serving, func(r Residency) bool { return r.String() == name }); at >= 0 {
		return serving[at]
	}
	return Cold
}
