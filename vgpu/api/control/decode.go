package control

import (
	"encoding/json"
	"errors"
	"io"
)

// DecodeRunRequest reads one request strictly: unknown fields and anything behind it are refused. The caller bounds the body.
func DecodeRunRequest(body io.Reader) (r RunRequest, err error) {
	err = decode(body, &r)
	return r, err
}

// DecodeLimitRequest does the same for a new limit.
func DecodeLimitRequest(body io.Reader) (r LimitRequest, err error) {
	err = decode(body, &r)
	return r, err
}

func decode(body io.Reader, into any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body goes on behind the request")
	}
	return nil
}
