package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// MaxFile is the maximum size of a file of functions in bytes.
const MaxFile = 1 << 20

// separator matches the lines that separate YAML documents. What follows on the line belongs to the next document.
var separator = regexp.MustCompile(`(?m)^(---|\.\.\.)([ \t]|$)`)

// Decode parses a file of functions for one machine, one in each YAML document, fills in the defaults and validates the functions. It refuses unknown
// and repeated fields, fields that only a cluster supports, and functions with the same name and namespace. The error names the document and the
// field of each mistake.
func Decode(text []byte) ([]*GPUFunction, error) { return decode(text, func(*GPUFunction) {}) }

// DecodeUnmeasured is Decode for functions that are to be measured: what nobody can know before may be missing. A missing share becomes the whole GPU
// with the given memory, and a missing requestsPerSecond the lowest valid value.
func DecodeUnmeasured(text []byte, memory Quantity) ([]*GPUFunction, error) {
	return decode(text, func(f *GPUFunction) {
		setPointer(&f.Spec.Resources.Share, Share{})
		setPointer(&f.Spec.Resources.Share.SM, 100)
		setDefault(&f.Spec.Resources.Share.Memory, memory)
		setDefault(&f.Spec.Scaling.RequestsPerSecond, minRate)
	})
}

// decode calls complete for each function before its defaults are filled in.
func decode(text []byte, complete func(*GPUFunction)) ([]*GPUFunction, error) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	switch {
	case len(text) > MaxFile:
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), MaxFile)
	case bytes.ContainsAny(text, "\r\u0085\u2028\u2029"): // YAML would see lines, and documents, where separator does not
		return nil, errors.New("lines must end with a newline, or with a carriage return and a newline")
	}
	var functions []*GPUFunction
	var errs []error
	seen := map[types.NamespacedName]bool{}
	number := 0
	for _, document := range separator.Split(string(text), -1) {
		f, err := decodeOne(document, complete)
		if f == nil && err == nil {
			continue
		}
		number++
		if err == nil && seen[f.name()] {
			err = share.Invalid("metadata.name", "%s is the name of an earlier function, too", f.name())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", number, err))
			continue
		}
		seen[f.name()] = true
		functions = append(functions, f)
	}
	if len(functions) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there is no function in it"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return functions, nil
}

// decodeOne parses one document. It returns nil for an empty one.
func decodeOne(document string, complete func(*GPUFunction)) (*GPUFunction, error) {
	var content *file
	if err := strictyaml.Unmarshal([]byte(document), &content); err != nil || content == nil {
		return nil, err
	}
	f := content.function()
	complete(f)
	f.setDefaults()
	return f, f.validate()
}
