package profile

import (
	"encoding/json"
	"testing"
)

// TestSecondsJSON: times in files are numbers of seconds, or have a unit.
func TestSecondsJSON(t *testing.T) {
	for text, want := range map[string]Seconds{`0.069`: 0.069, `"69ms"`: 0.069, `"1m"`: 60, `200`: 200, `"69"`: -1, `""`: -1, `[]`: -1} {
		got := Seconds(-1)
		if err := json.Unmarshal([]byte(text), &got); got != want || (err != nil) != (want < 0) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}
