package token_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gshare-dev/gshare/lab/delivery"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestTranscripts plays the scripts of testdata on a slice. Their lines are
//
//	policy NAME [reserve PERMILLE] [window D]     creates a slice
//	TIME join ID SM REQUEST LIMIT                 in per mille
//	TIME want|idle|leave ID
//	TIME settle ID BUSY
//	TIME open ID none|short|long
//	TIME run                                      calls Advance until then, whenever it is due
//
// Each line of the answer has the time, the changes, and the deadlines of tokens.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, file string) {
		var p player
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				if err := p.play(strings.Fields(line), &out); err != nil {
					d.Fatalf(t, "%s: %v", line, err)
				}
			}
			return out.String()
		})
	})
}

// TestUnknownPolicy: a script with a policy that does not exist plays on no other instead, such as the default.
func TestUnknownPolicy(t *testing.T) {
	var p player
	if err := p.play([]string{"policy", "nosuch"}, nil); err == nil || p.slice != nil {
		t.Errorf("%v, %v", err, p.slice)
	}
}

// player drives one slice.
type player struct {
	slice *token.Slice
	next  time.Duration
}

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
		fmt.Fprintln(out, err)
	}
	p.advance(now, out)
	return nil
}

func (p *player) open(words []string) (err error) {
	var c token.Config
	policies := delivery.Policies()
	at := slices.IndexFunc(policies, func(p token.Policy) bool { return p.String() == words[1] })
	if at < 0 {
		return fmt.Errorf("unknown token policy %q", words[1])
	}
	c.Policy = policies[at]
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
	p.slice, err = token.New(c)
	p.next = token.Never
	return err
}

func (p *player) event(now time.Duration, words []string) error {
	var id token.ID
	if _, err := fmt.Sscan(words[1], &id); err != nil {
		return err
	}
	switch words[0] {
	case "join":
		m := token.Member{ID: id}
		if _, err := fmt.Sscan(strings.Join(words[2:], " "), &m.SM, &m.QuotaRequest, &m.QuotaLimit); err != nil {
			return err
		}
		return p.slice.Join(now, m)
	case "want":
		return p.slice.RequestToken(now, id)
	case "idle":
		return p.slice.ReleaseToken(now, id)
	case "leave":
		return p.slice.Leave(now, id)
	case "open":
		work := map[string]token.OpenWork{"none": token.NoWork, "short": token.ShortWork, "long": token.LongWork}
		return p.slice.ReportOpenWork(now, id, work[words[2]])
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
	fmt.Fprintf(out, "%v:", now)
	for _, c := range changes {
		fmt.Fprintf(out, " %v %d", c.Kind, c.ID)
		if c.Kind != token.Revoke {
			fmt.Fprintf(out, " until %v", c.Token.Deadline)
		}
	}
	fmt.Fprintln(out)
}
