package supervisor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

var config = supervisor.Config{
	FirstDelay: time.Second, LastDelay: 8 * time.Second, Settled: 30 * time.Second, Patience: 5 * time.Second, Grace: 10 * time.Second,
}

// TestTranscripts replays lists of observations, and expects the time and the decision of each. An observation is a time, the daemon's
// state, and any of: fault, unwanted, clients N, nonmps PID.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		s := supervisor.New(config)
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				at, observation := parse(t, line)
				fmt.Fprintf(&out, "%v: %s\n", at, format(s.Decide(time.Time{}.Add(at), observation)))
			}
			return out.String()
		})
	})
}

// parse parses an observation.
func parse(t *testing.T, line string) (at time.Duration, o supervisor.Observation) {
	t.Helper()
	words := strings.Fields(line)
	at, err := time.ParseDuration(words[0])
	if err != nil {
		t.Fatal(line, err)
	}
	o.Wanted, o.Daemon = true, supervisor.Daemon(words[1])
	for n := 2; n < len(words); n++ {
		switch words[n] {
		case "fault":
			o.Fault = true
		case "unwanted":
			o.Wanted = false
		case "clients":
			n++
			_, err = fmt.Sscan(words[n], &o.Clients)
		case "nonmps":
			n++
			var pid int
			_, err = fmt.Sscan(words[n], &pid)
			o.NonMPS = append(o.NonMPS, pid)
		default:
			t.Fatal(line)
		}
		if err != nil {
			t.Fatal(line, err)
		}
	}
	return at, o
}

// format returns a decision as transcripts have it.
func format(d supervisor.Decision) string {
	state := "open"
	if d.Closed != "" {
		state = "closed: " + d.Closed
	}
	if d.Action != supervisor.Nothing {
		state = string(d.Action) + "; " + state
	}
	if len(d.NonMPS) > 0 {
		state += fmt.Sprint("; nonmps ", d.NonMPS)
	}
	return state
}
