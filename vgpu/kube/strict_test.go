package kube

import "testing"

func TestRefuseRepeats(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		wantOK bool
	}{
		"once each":            {`{"a":1,"b":[{"a":1},{"a":2}],"c":{"b":1}}`, true},
		"values are no fields": {`{"a":"b","b":["a","b"]}`, true},
		"braces in strings":    {`{"a":"}]\"{[:","b":"\\"}`, true},
		"no object":            {`[1,"a","a"]`, true},
		"space before colon":   {"{\"a\" \n:1,\"a\"\t:2}", false},
		"after an inner one":   {`{"a":{"b":1},"a":1}`, false},
		"inside a list":        {`[{"a":1,"a":1}]`, false},
		"other case":           {`{"a":1,"A":1}`, false},
		"escaped":              {`{"\u0061":1}`, false},
		"not ASCII":            {`{"ſ":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refuseRepeats(tc.text); (err == nil) != tc.wantOK {
				t.Errorf("refuseRepeats(%s) = %v", tc.text, err)
			}
		})
	}
}
