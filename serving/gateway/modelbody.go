package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/gshare-dev/gshare/serving/oip"
)

// modelInBody reads the body and returns the model that it names: in the member "model" of JSON, which may be compressed, or, of an upload such as a sound to
// transcribe, in the field "model" of the form.
func (e *exchange) modelInBody() (model string, why refusal) {
	all := &e.gateway.bodies
	reserved, why := e.readBody(all, maxModelBody, maxModelBodies)
	e.modelBody = reservation{all, reserved}
	if why.status != 0 {
		return "", why
	}
	text := arriving{all: all, most: int(maxModelBody), mostOfAll: maxModelBodies, bytes: e.body}
	defer func() { all.release(text.reserved) }()
	switch encoding := strings.ToLower(e.request.Header.Get(contentEncodingHeader)); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		text.bytes = nil
		if why := unzip(&text, e.body); why.status != 0 {
			return "", why
		}
	default:
		return "", newRefusal(causeBadRequest, fmt.Sprintf("the model cannot be read from a body with the encoding %.32q: send it plain or with gzip, "+
			"or name the function by the host", encoding))
	}
	var err error
	if kind, parameters, _ := mime.ParseMediaType(e.request.Header.Get(contentTypeHeader)); kind == "multipart/form-data" {
		model, err = modelOfForm(text.bytes, parameters["boundary"])
	} else {
		model, err = oip.ModelOf(text.bytes)
	}
	if err != nil {
		return "", newRefusal(causeBadRequest, err.Error())
	}
	return model, refusal{}
}

// unzip reads a compressed body.
func unzip(text *arriving, body []byte) refusal {
	from, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		err = text.readAll(http.MaxBytesReader(nil, from, int64(text.most)))
	}
	switch tooMany := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooMany):
		return bodyTooLarge(maxModelBody)
	case err != nil:
		return newRefusal(causeBadRequest, "the body is no gzip, as its Content-Encoding says")
	case text.hasNoRoom:
		return refuseFull
	}
	return refusal{}
}

// Bounds of a form: its parts, and the length of a model.
const (
	maxParts = 1000
	maxModel = 1024
)

// modelOfForm returns the field "model" of a form with files, which has to be there once.
func modelOfForm(body []byte, boundary string) (string, error) {
	var model []byte
	form := multipart.NewReader(bytes.NewReader(body), boundary)
	for range maxParts {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && model == nil:
			return "", errors.New("the form has no field model")
		case errors.Is(err, io.EOF):
			return string(model), nil
		case err != nil:
			return "", errors.New("the form is not valid")
		case part.FormName() != "model":
			continue
		case model != nil:
			return "", errors.New("the form has two fields model")
		}
		if model, err = io.ReadAll(io.LimitReader(part, maxModel)); err != nil {
			return "", errors.New("the form is not valid")
		}
	}
	return "", fmt.Errorf("the form has more than %d fields", maxParts)
}
