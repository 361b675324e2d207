package token

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// A transcript is a script with the answers below each line. Lines are
//
//	policy NAME [reserve PERMILLE] [window D]     a new slice
//	TIME join ID SM REQUEST LIMIT                 per mille
//	TIME want|idle|leave ID
//	TIME settle ID BUSY
//	TIME run                                      until then, calling Advance whenever it asks
//
// Answers begin with "->": the time, what is taken, renewed and granted, and the deadlines.
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
	var p player
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "->") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line != "" && line[0] != '#' {
			if err := p.play(strings.Fields(line), &out); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	return out.String()
}

// player drives one slice.
type player struct {
	slice *Slice
	next  time.Duration
}

var policyNames = map[string]Policy{"table": Table, "fast": Fast, "hol": HeadOfLine, "skip": SkipAhead}

func (p *player) play(words []string, out *strings.Builder) error {
	if words[0] == "policy" {
		return p.open(words)
	}
	now, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	if words[1] == "run" {
		for p.next <= now {
			p.advance(p.next, out)
		}
		return nil
	}
	if err := p.event(now, words[1:]); err != nil {
		fmt.Fprintf(out, "-> %v\n", err)
	}
	p.advance(now, out)
	return nil
}

func (p *player) open(words []string) (err error) {
	c := Config{Policy: policyNames[words[1]]}
	for k := 2; k+1 < len(words); k += 2 {
		switch words[k] {
		case "reserve":
			_, err = fmt.Sscan(words[k+1], &c.Reserve)
		case "window":
			c.Window, err = time.ParseDuration(words[k+1])
		}
		if err != nil {
			return err
		}
	}
	p.slice, err = New(c)
	p.next = Never
	return err
}

func (p *player) event(now time.Duration, words []string) error {
	var id ID
	if _, err := fmt.Sscan(words[1], &id); err != nil {
		return err
	}
	switch words[0] {
	case "join":
		m := Member{ID: id}
		if _, err := fmt.Sscan(strings.Join(words[2:], " "), &m.SM, &m.QuotaRequest, &m.QuotaLimit); err != nil {
			return err
		}
		return p.slice.Join(now, m)
	case "want":
		return p.slice.Want(now, id)
	case "idle":
		return p.slice.Idle(now, id)
	case "leave":
		return p.slice.Leave(now, id)
	case "settle":
		busy, err := time.ParseDuration(words[2])
		if err != nil {
			return err
		}
		return p.slice.Settle(now, id, busy)
	}
	return fmt.Errorf("unknown event %s", words[0])
}

func (p *player) advance(now time.Duration, out *strings.Builder) {
	changes, next := p.slice.Advance(now)
	p.next = next
	if len(changes) == 0 {
		return
	}
	fmt.Fprintf(out, "-> %v:", now)
	for _, c := range changes {
		fmt.Fprintf(out, " %v %d", c.Kind, c.ID)
		if c.Kind != Revoke {
			fmt.Fprintf(out, " until %v", c.Token.Deadline)
		}
	}
	fmt.Fprintln(out)
}
