package supervisor_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

var update = flag.Bool("update", false, "rewrite the transcripts with what the supervisor decides")

var config = supervisor.Config{
	FirstDelay: time.Second, LastDelay: 8 * time.Second, Settled: 30 * time.Second, Patience: 5 * time.Second, Grace: 10 * time.Second,
}

// TestTranscripts replays lists of observations, with the expected decision below each. An observation is a time, the daemon's state, and
// any of: fault, unwanted, clients N, nonmps PID.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}

// replay returns the transcript with the decisions replaced by those of a new supervisor.
func replay(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	s := supervisor.New(config)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "->") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line != "" && line[0] != '#' {
			at, observation := parse(t, line)
			fmt.Fprintln(&out, "->", format(s.Decide(time.Time{}.Add(at), observation)))
		}
	}
	return out.String()
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
