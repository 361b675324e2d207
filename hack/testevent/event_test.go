package testevent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRead(t *testing.T) {
	in := "go: odd\n" + `{"Action":"run","Package":"p","Test":"A"}` + "\n" + `{"Other":1}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":1.5}`
	var events []Event
	var others []string
	if err := Read(strings.NewReader(in), func(e Event) { events = append(events, e) }, func(l string) { others = append(others, l) }); err != nil {
		t.Fatal(err)
	}
	if want := []Event{{Action: "run", Package: "p", Test: "A"}, {Action: "pass", Package: "p", Elapsed: 1.5}}; !slices.Equal(events, want) {
		t.Errorf("events %v, want %v", events, want)
	}
	if want := []string{"go: odd\n", `{"Other":1}` + "\n"}; !slices.Equal(others, want) {
		t.Errorf("other lines %q, want %q", others, want)
	}
	broken := errors.New("broken")
	if err := Read(iotest.ErrReader(broken), nil, nil); err != broken {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestParents(t *testing.T) {
	for test, want := range map[string][]string{"A": nil, "A/b": {"A"}, "A/b/c": {"A", "A/b"}} {
		t.Run(test, func(t *testing.T) {
			if got := Parents(test); !slices.Equal(got, want) {
				t.Errorf("Parents(%s) = %v, want %v", test, got, want)
			}
		})
	}
}
