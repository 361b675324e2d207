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

var update = flag.Bool("update", false, "write the transcripts anew")

var config = supervisor.Config{
	FirstDelay: time.Second, LastDelay: 8 * time.Second, Settled: 30 * time.Second, Patience: 5 * time.Second, Grace: 10 * time.Second,
}

// A transcript is a list of looks with the orders below each. A look is a time, the daemon's state, and any of: fault,
// unwanted, clients N, bare PID.
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
			at, look := parse(t, line)
			fmt.Fprintln(&out, "->", format(s.Look(time.Time{}.Add(at), look)))
		}
	}
	return out.String()
}

func parse(t *testing.T, line string) (at time.Duration, l supervisor.Look) {
	t.Helper()
	words := strings.Fields(line)
	at, err := time.ParseDuration(words[0])
	if err != nil {
		t.Fatal(line, err)
	}
	l.Wanted, l.Daemon = true, supervisor.Daemon(words[1])
	for n := 2; n < len(words); n++ {
		switch words[n] {
		case "fault":
			l.Fault = true
		case "unwanted":
			l.Wanted = false
		case "clients":
			n++
			_, err = fmt.Sscan(words[n], &l.Clients)
		case "bare":
			n++
			var pid int
			_, err = fmt.Sscan(words[n], &pid)
			l.Bare = append(l.Bare, pid)
		default:
			t.Fatal(line)
		}
		if err != nil {
			t.Fatal(line, err)
		}
	}
	return at, l
}

func format(o supervisor.Orders) string {
	state := "open"
	if o.Closed != "" {
		state = "closed: " + o.Closed
	}
	if o.Do != supervisor.Nothing {
		state = string(o.Do) + "; " + state
	}
	if len(o.Bare) > 0 {
		state += fmt.Sprint("; bare ", o.Bare)
	}
	return state
}
