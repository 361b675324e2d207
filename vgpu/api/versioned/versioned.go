// Package versioned decodes the JSON records that outlive the process that wrote them.
package versioned

import (
	"encoding/json"
	"errors"
	"fmt"

	strict "sigs.k8s.io/json"
)

// UnsupportedError is the error of Decode for a record of another version.
type UnsupportedError struct{ Version, Supported int }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("version %d is not supported, only version %d is", e.Version, e.Supported)
}

// Decode parses a JSON object whose field "version" has the given value. It returns an error for other versions and for unknown, duplicate
// or misspelled fields: data that is not understood must never be read as zero values.
func Decode(text []byte, version int, into any) error {
	var header struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return err
	}
	if header.Version != version {
		return &UnsupportedError{header.Version, version}
	}
	repeated, err := strict.UnmarshalStrict(text, into)
	return errors.Join(append(repeated, err)...)
}
