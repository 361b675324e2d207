package table

import (
	"slices"
	"strings"
	"testing"
)

func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		text, failure string
		want          []string
	}{
		"rows":           {"a, b\n1,2\n\n\"3\n\",4\n", "", []string{"2 2", "4 4"}},
		"no rows":        {"a,b\n", "", nil},
		"empty":          {"", "read header: EOF", nil},
		"missing column": {"a\n1\n", "line 1: no column b", nil},
		"short row":      {"a,b\n1,2\n1\n", "line 3", []string{"2 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var failed error
			for r, err := range Rows(strings.NewReader(c.text), "a", "b") {
				if failed = err; err == nil {
					got = append(got, string(rune('0'+r.Line))+" "+r.Text("b"))
				}
			}
			if !slices.Equal(got, c.want) || (failed == nil) != (c.failure == "") || failed != nil && !strings.Contains(failed.Error(), c.failure) {
				t.Errorf("got %q, %v; want %q, %q", got, failed, c.want, c.failure)
			}
		})
	}
}
