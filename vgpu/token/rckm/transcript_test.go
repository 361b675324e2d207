package rckm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestTranscripts plays the scripts of testdata on a slice with clients. Their lines are
//
//	slice [printed] [kernel BLOCKS]               creates a slice; kernels have that many blocks, or any number by default
//	TIME join ID slo|best-effort REQUEST LIMIT MAXTOKENS
//	TIME work ID BLOCKS DURATION [BATCH]          launches so many blocks a tick, as far as tokens allow, in reported batches
//	TIME resize ID LIMIT
//	TIME leave ID
//	TIME run                                      advances until then
//
// Each line of the answer is a time at which the state or a member's tokens changed. EMERGENCY is followed by its owner and severity.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		var p player
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				p.play(t, strings.Fields(line), &out)
			}
			return out.String()
		})
	})
}

// player drives one slice.
type player struct {
	*machine
	shown string
}

func (p *player) play(t *testing.T, words []string, out *strings.Builder) {
	t.Helper()
	if words[0] == "slice" {
		var c Config
		if slices.Contains(words, "printed") {
			c.Algorithm = Printed
		}
		p.machine, p.shown = newMachine(t, c), ""
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
		fmt.Fprintf(out, "%v\n", err)
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
		fmt.Fprintf(out, "%v: %s\n", now, &line)
	}
	p.shown = line.String()
}
