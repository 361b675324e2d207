package strictyaml

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type Inner struct {
	Size int `json:"size"`
}

type document struct {
	Inner  `json:",inline"`
	Name   string            `json:"name"`
	Wait   metav1.Duration   `json:"wait"`
	Each   []metav1.Duration `json:"each"`
	Active bool              `json:"active"`
	Rates  []float64         `json:"rates"`
}

// TestUnmarshal: what is wrong is named by the line or the field of the file, and by nothing of Go.
func TestUnmarshal(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"size: 3\nname: a\nwait: 1s\neach: [2s, 3m]\nactive: true\nrates: [1, 2.5]", ""},
		{`{"size": 3, "name": "a"}`, ""},
		{"", ""},
		{"name: a\nnosuch: 1", `unknown field "nosuch"`},
		{"Name: a", `unknown field "Name"`},
		{"name: a\nname: b", `line 2: key "name" already set in map`},
		{"name: [", "line 1: did not find expected node content"},
		{"name: a\n\tactive: true", "line 2: found a tab character that violates indentation"},
		{"[1, 2]", "want fields, not a list"},
		{"3", "want fields, not number"},
		{"size: big", "size: want a whole number, not string"},
		{"size: 1.5", "size: want a whole number, not number 1.5"},
		{"name: {a: b}", "name: want a string, not object"},
		{"name: 50", "name: 50: want a string, not number: add its unit, or put it in quotes"},
		{"name: yes", "name: true: want a string, not bool: put it in quotes"},
		{"each: [1s, 10]", "each[1]: 10: a unit is missing, such as 500ms, 30s or 1h30m"},
		{"active: maybe", "active: want true or false, not string"},
		{"rates: 3", "rates: want a list, not number"},
		{"rates: [1, x]", "rates: want a number, not string"},
		{"wait: soon", `wait: "soon": want a duration with a unit, such as 500ms, 30s or 1h30m`},
		{"name: a\nwait: 10", "wait: 10: a unit is missing, such as 500ms, 30s or 1h30m"},
		{"each: [1s, soon]", `each[1]: "soon": want a duration with a unit, such as 500ms, 30s or 1h30m`},
	} {
		t.Run(c.text, func(t *testing.T) {
			got := ""
			if err := Unmarshal([]byte(c.text), &document{}); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
