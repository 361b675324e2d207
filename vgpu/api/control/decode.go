package control

import (
	"encoding/json"
	"errors"
	"io"
)

// DecodeRunRequest reads one request strictly: unknown fields and anything behind it are refused. The caller bounds the body.
func DecodeRunRequest(body io.Reader) (r RunRequest, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return RunRequest{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return RunRequest{}, errors.New("the body goes on behind the request")
	}
	return r, nil
}
