package residency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Wanted is the level at which the controller wants an instance to be. A pod without a Wanted is not an instance: it stays Hot, and nothing
// is reported about it (Fixed).
type Wanted struct {
	Seq     int64 `json:"seq"` // grows by one with each change of the level
	Level   Level `json:"level"`
	Drained bool  `json:"drained,omitempty"` // for Warm and Cold: no gateway sends requests any more
}

// Fixed is the Wanted that stands for a pod without one.
var Fixed = Wanted{Level: Hot}

// Reached is the agent's answer to a Wanted, and its record of the instance. The zero value stands for a pod that has not started.
type Reached struct {
	Seq     int64 `json:"seq"` // of the last Wanted that was answered
	Level   Level `json:"level"`
	Refused bool  `json:"refused,omitempty"` // the slice has no room for the wanted level, or the instance cannot be parked: see CannotPark
	// Memory is what a Warm instance keeps on each of its devices: both the most that it may still allocate there, and what it counts for.
	Memory share.Bytes `json:"memory,omitempty"`
	// Host is an upper bound, as its agent counts it, on the host memory that holds what a Warm instance has given back.
	Host share.Bytes `json:"host,omitempty"`
}

// Answers reports whether r answers w: the agent has carried w out or refused it, and will not act on it again.
func (r Reached) Answers(w Wanted) bool { return r.Seq == w.Seq }

// CannotPark reports whether r says that the instance could not be parked as w wants, and so goes on as before.
func (r Reached) CannotPark(w Wanted) bool { return r.Refused && r.Answers(w) && w.Level < r.Level }

// formatVersion is the version of the text of Wanted and Reached.
const formatVersion = 1

const (
	fieldHost   = "host"
	fieldLevel  = "level"
	fieldMemory = "memory"
	fieldSeq    = "seq"
)

// maxText is the greatest length, in bytes, of a text that is decoded. Encoded texts are far shorter.
const maxText = 256

// Encode returns the text of an annotation. The error is a *share.FieldError for an invalid value.
func (w Wanted) Encode() (string, error) { return encode(w, w.validate()) }

// Encode returns the text of an annotation. The error is a *share.FieldError for an invalid value.
func (r Reached) Encode() (string, error) { return encode(r, r.validate()) }

// DecodeWanted parses the text of an annotation. It returns an error for unknown fields and for other versions.
func DecodeWanted(text string) (Wanted, error) {
	w, err := decode[Wanted](text)
	if err == nil {
		err = w.validate()
	}
	return w, wrap("wanted", err)
}

// DecodeReached parses the text of an annotation. It returns an error for unknown fields and for other versions.
func DecodeReached(text string) (Reached, error) {
	r, err := decode[Reached](text)
	if err == nil {
		err = r.validate()
	}
	return r, wrap("reached", err)
}

func (w Wanted) validate() error {
	switch {
	case w.Seq < 1:
		return share.Invalid(fieldSeq, "%d is below 1", w.Seq)
	case w.Drained && w.Level.Serves():
		return share.Invalid(fieldLevel, "%s is not drained", w.Level)
	}
	return nil
}

func (r Reached) validate() error {
	switch {
	case r.Seq < 1:
		return share.Invalid(fieldSeq, "%d is below 1", r.Seq)
	case r.Memory < 0 || r.Memory > 0 && r.Level != Warm:
		return share.Invalid(fieldMemory, "%d bytes at level %s", r.Memory, r.Level)
	case r.Host < 0 || r.Host > 0 && r.Level != Warm:
		return share.Invalid(fieldHost, "%d bytes at level %s", r.Host, r.Level)
	}
	return nil
}

// versionedText is the text of an annotation: a version and the value, side by side in one object.
type versionedText[T any] struct {
	Version int `json:"v"`
	Value   *T  `json:"residency"`
}

func encode[T any](value T, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(versionedText[T]{formatVersion, &value})
	return string(text), err
}

func decode[T any](text string) (none T, _ error) {
	if len(text) > maxText {
		return none, fmt.Errorf("%d bytes are more than %d", len(text), maxText)
	}
	var read versionedText[T]
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return none, err
	}
	switch _, err := d.Token(); {
	case err != io.EOF:
		return none, errors.New("text follows the value")
	case read.Version != formatVersion:
		return none, fmt.Errorf("version %d is not %d", read.Version, formatVersion)
	case read.Value == nil:
		return none, errors.New("no value")
	}
	return *read.Value, nil
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("decode %s residency: %w", what, err)
	}
	return nil
}
