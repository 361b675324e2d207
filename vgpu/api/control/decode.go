package control

import (
	"encoding/json"
	"errors"
	"io"
)

// DecodeRunRequest decodes one request strictly: it fails on unknown fields and on trailing data. The caller limits the size of the
// body.
func DecodeRunRequest(body io.Reader) (r RunRequest, err error) {
	err = decode(body, &r)
	return r, err
}

// DecodeLimitRequest decodes a new limit as strictly as DecodeRunRequest.
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
		return errors.New("unexpected data after the request")
	}
	return nil
}
