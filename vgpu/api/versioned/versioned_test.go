package versioned

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for name, test := range map[string]struct{ text, refused string }{
		"whole":           {`{"version":3,"share":500}`, ""},
		"newer version":   {`{"version":4,"share":500,"window":1}`, "version 4 is not supported, only version 3 is"},
		"no version":      {`{"share":500}`, "version 0 is not supported"},
		"unknown field":   {`{"version":3,"shares":500}`, "unknown field"},
		"another case":    {`{"version":3,"Share":500}`, "unknown field"},
		"repeated field":  {`{"version":3,"share":500,"share":1}`, "duplicate field"},
		"another type":    {`{"version":3,"share":"500"}`, "cannot unmarshal"},
		"trailing text":   {`{"version":3,"share":500}}`, "after top-level value"},
		"torn":            {`{"version":3,"sha`, "unexpected end"},
		"empty":           {``, "unexpected end"},
		"not an object":   {`[]`, "cannot unmarshal"},
		"version as text": {`{"version":"3","share":500}`, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			var r struct {
				Version int `json:"version"`
				Share   int `json:"share"`
			}
			switch err := Decode([]byte(test.text), 3, &r); {
			case test.refused == "" && (err != nil || r.Share != 500):
				t.Errorf("%+v, %v", r, err)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("error %v, want one with %q", err, test.refused)
			}
		})
	}
}
