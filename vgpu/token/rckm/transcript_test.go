package rckm

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// A transcript is a script with the answers below each line. Lines are
//
//	slice [printed] [kernel BLOCKS]            a new one; kernels of that size, else they come as they fit
//	TIME join ID slo|best-effort REQUEST LIMIT MAXTOKENS
//	TIME work ID BLOCKS FOR [BATCH]            so many blocks a tick, as far as its tokens go, in batches that the host tells of
//	TIME resize ID LIMIT
//	TIME leave ID
//	TIME run                                   until then
//
// Answers begin with "->": each time that the state or somebody's tokens are others than before. An EMERGENCY is followed by
// its owner and severity.
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
			p.play(t, strings.Fields(line), &out)
		}
	}
	return out.String()
}

// player drives one slice.
type player struct {
	*machine
	shown string
}

func (p *player) play(t *testing.T, words []string, out *strings.Builder) {
	t.Helper()
	if words[0] == "slice" {
		p.machine, p.shown = newMachine(t, Config{Printed: slices.Contains(words, "printed")}), ""
		if at := slices.Index(words, "kernel"); at > 0 {
			fmt.Sscan(words[at+1], &p.kernel)
		}
		return
	}
	now, err := time.ParseDuration(words[0])
	if err != nil {
		t.Fatal(err)
	}
	p.until(now, func(at time.Duration) { p.show(at, out) })
	if words[1] == "run" {
		return
	}
	if err := p.event(now, words[1:]); err != nil {
		fmt.Fprintf(out, "-> %v\n", err)
	}
	p.advance(now)
	p.show(now, out)
}

func (p *player) event(now time.Duration, words []string) error {
	m := Member{}
	rest := strings.Join(words[2:], " ")
	if _, err := fmt.Sscan(words[1], &m.ID); err != nil {
		return err
	}
	switch words[0] {
	case "join":
		if _, err := fmt.Sscan(rest, &m.Priority, &m.Request, &m.Limit, &m.MaxTokens); err != nil {
			return err
		}
		return p.Join(now, m)
	case "work":
		var blocks int64
		length, err := time.ParseDuration(words[3])
		fmt.Sscan(words[2], &blocks)
		var batch time.Duration
		if len(words) > 4 {
			batch, err = time.ParseDuration(words[4])
		}
		p.loads = append(p.loads, load{m.ID, blocks, now, now + length, batch})
		return err
	case "resize":
		var limit share.PerMille
		fmt.Sscan(rest, &limit)
		return p.Resize(now, m.ID, limit)
	case "leave":
		return p.Leave(now, m.ID)
	}
	return fmt.Errorf("unknown event %s", words[0])
}

func (p *player) show(now time.Duration, out *strings.Builder) {
	var line strings.Builder
	pressure := p.Pressure()
	fmt.Fprint(&line, pressure.State)
	if pressure.State == Emergency {
		fmt.Fprintf(&line, " of %d, %d", pressure.Owner, pressure.Severity)
	}
	for id := range token.ID(10) {
		if at, known := p.find(id); known {
			fmt.Fprintf(&line, ", %d has %d", id, p.members[at].balance)
		}
	}
	if line.String() != p.shown {
		fmt.Fprintf(out, "-> %v: %s\n", now, &line)
	}
	p.shown = line.String()
}
