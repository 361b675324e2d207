// Package strictyaml decodes files that people write, and says what is wrong with them in the words of the file.
package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Unmarshal decodes a YAML document, which may be JSON. It returns an error for unknown and repeated fields. An error names the line or the field.
func Unmarshal(text []byte, into any) error {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return Plain(err)
	}
	unknown, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		unknown = append(unknown, valueError(text, err, reflect.TypeOf(into)))
	}
	return errors.Join(unknown...)
}

// Plain returns an error of the decoders of YAML and JSON without the names of Go packages and types.
func Plain(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		return share.Invalid(field(wrong.Field), "%s", reason(err))
	} else if wrong != nil {
		return errors.New(reason(err))
	}
	text := err.Error()
	for _, before := range []string{"error converting YAML to JSON: ", "yaml: ", "json: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, before)
	}
	return errors.New(strings.TrimSpace(text))
}

// valueError returns the error of a value, with its field.
func valueError(text []byte, err error, of reflect.Type) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	isType := errors.As(err, &wrong)
	bare := isType && wrong.Type.Kind() == reflect.String && (wrong.Value == "number" || wrong.Value == "bool")
	if isType && wrong.Field != "" && !bare { // the decoder knows no field of types that decode themselves
		return Plain(err)
	}
	path, value, takesText := culprit(text, of)
	switch {
	case path == "":
		return Plain(err)
	case bare && takesText && wrong.Value == "number": // a type that has units, such as a size, may check them later
		return share.Invalid(path, "%.64s: want a string, not number: add its unit, or put it in quotes", value)
	case bare && takesText:
		return share.Invalid(path, "%.64s: want a string, not %s: put it in quotes", value, wrong.Value)
	case bare:
		return share.Invalid(path, "%.64s: a unit is missing, such as 500ms, 30s or 1h30m", value)
	}
	return share.Invalid(path, "%.64s: %s", value, reason(err))
}

// reason returns why a value is refused, without its field.
func reason(err error) string {
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.As(err, &wrong):
		return fmt.Sprintf("want %s, not %.64s", kindName(wrong.Type.Kind()), strings.Replace(wrong.Value, "array", "a list", 1))
	case strings.HasPrefix(err.Error(), "time: "): // of metav1.Duration
		return "want a duration with a unit, such as 500ms, 30s or 1h30m"
	}
	return err.Error()
}

// field returns a path without the names of embedded Go types, which the file has no level for.
func field(path string) string {
	var levels []string
	for level := range strings.SplitSeq(path, ".") {
		if !unicode.IsUpper(rune(level[0])) {
			levels = append(levels, level)
		}
	}
	return strings.Join(levels, ".")
}

// culprit returns the path of the first value, in the order of names, that cannot be decoded even alone, the value, and whether
// any text could be there. A path of "" means that there is none.
func culprit(text []byte, of reflect.Type) (path, value string, takesText bool) {
	var document map[string]any
	if json.Unmarshal(text, &document) != nil {
		return "", "", false
	}
	refused := func(alone any) bool {
		text, err := json.Marshal(alone)
		return err == nil && json.Unmarshal(text, reflect.New(of.Elem()).Interface()) != nil
	}
	var search func(at any, path string, within func(any) any)
	search = func(at any, from string, within func(any) any) {
		if path != "" {
			return
		}
		switch at := at.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(at)) {
				search(at[name], strings.TrimPrefix(from+"."+name, "."), func(v any) any { return within(map[string]any{name: v}) })
			}
		case []any:
			for i, v := range at {
				search(v, from+"["+strconv.Itoa(i)+"]", func(v any) any { return within([]any{v}) })
			}
		default:
			if refused(within(at)) {
				text, _ := json.Marshal(at) // a value that was decoded
				path, value, takesText = from, string(text), !refused(within("text"))
			}
		}
	}
	search(document, "", func(v any) any { return v })
	return path, value, takesText
}

// kindName returns what users call the values of a kind.
func kindName(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Int32:
		return "a whole number of 32 bits"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 on"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "fields"
}
