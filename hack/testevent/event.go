// Package testevent reads the events that "go test -json" and "go tool test2json" print.
package testevent

import (
	"bufio"
	"encoding/json"
	"io"
)

// Event is one line of the output of "go test -json" (go doc test2json). Test is empty in events of the whole package.
type Event struct {
	Action      string
	Package     string
	ImportPath  string // set in build events, which have no Package
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string // set if a package failed because a build did: the ImportPath of that build
}

// Read calls event for each event until the end of the input, and other for each line that is not an event. It returns an error if reading
// fails.
func Read(in io.Reader, event func(Event), other func(line string)) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e Event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				other(string(line))
			} else {
				event(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Parents returns the tests that contain a subtest: of A/b/c, these are A and A/b.
func Parents(test string) []string {
	var list []string
	for i, c := range test {
		if c == '/' {
			list = append(list, test[:i])
		}
	}
	return list
}
