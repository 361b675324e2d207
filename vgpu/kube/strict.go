package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// formatVersion is the format version of inventory, placement and enforcement status annotations. Other versions are refused.
const formatVersion = 1

// decodeStrict decodes one JSON value into the struct at into. It refuses unknown and repeated fields, and text after the value. The caller
// limits the length of the text.
func decodeStrict(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the JSON value")
	}
	return refuseRepeats(text)
}

// refuseRepeats returns an error if a JSON object has two fields of the same name. encoding/json would use the last of them, whatever its
// case and escapes; a parser in another language might use the first. The text must have passed the other checks of decodeStrict, so it is
// valid JSON and nested no deeper than its struct. json.Decoder.Token would need 480 allocations for a placement of three vGPUs.
func refuseRepeats(text string) error {
	var (
		names  []string // names of the fields seen so far in all open objects
		starts []int    // for each open object or list, where its names begin
	)
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			starts = append(starts, len(names))
		case '}', ']':
			names, starts = names[:starts[len(starts)-1]], starts[:len(starts)-1]
		case '"':
			end := stringEnd(text, i)
			if name := text[i+1 : end-1]; isField(text[end:]) {
				if err := checkField(name, names[starts[len(starts)-1]:]); err != nil {
					return err
				}
				names = append(names, name)
			}
			i = end - 1
		}
	}
	return nil
}

// stringEnd returns the index after the closing quote of the string that begins at start.
func stringEnd(text string, start int) int {
	for i := start + 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func isField(rest string) bool { return strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), ":") }

func checkField(name string, seen []string) error {
	if !isPlainName(name, len(name)) {
		return fmt.Errorf("field %.64q is not spelled plainly", name)
	}
	for _, other := range seen {
		if strings.EqualFold(name, other) {
			return fmt.Errorf("field %.64q is there twice", name)
		}
	}
	return nil
}

// isPlainName reports whether s can be an identifier: 1 to limit letters, digits, '-', '_' and '.'.
func isPlainName(s string, limit int) bool {
	return s != "" && len(s) <= limit && strings.IndexFunc(s, isNotPlain) < 0
}

func isNotPlain(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		return false
	}
	return true
}
