package machine

import (
	"strings"
	"sync"
)

// progress is what a process waits for until it is ready, and the last line that it has written. Until it is ready, each change is reported, in
// the order of the changes.
type progress struct {
	report func(message string) // called with the mutex held

	mu       sync.Mutex // guards what follows
	waits    string     // for what; empty while gshare run waits for the share
	line     string     // the last one
	reported string
	ended    bool
}

// wait notes what the process waits for.
func (p *progress) wait(text string) { p.change(func() { p.waits = text }) }

// wrote notes a line that the process has written.
func (p *progress) wrote(line string) { p.change(func() { p.line = line }) }

// forget forgets the last line if it has a prefix.
func (p *progress) forget(prefix string) {
	p.change(func() {
		if strings.HasPrefix(p.line, prefix) {
			p.line = ""
		}
	})
}

// explain adds the last line to how a process has ended.
func (p *progress) explain(end string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == "" {
		return end
	}
	return end + ": " + p.line
}

// explainOverdue adds the last line to what a process has waited for too long.
func (p *progress) explainOverdue(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return withLine(text, p.line)
}

// end ends the reports.
func (p *progress) end() { p.change(func() { p.ended = true }) }

func (p *progress) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	message := p.message()
	if p.ended || message == p.reported {
		return
	}
	p.reported = message
	p.report(message)
}

// message returns what is reported. While gshare run waits for the share, it writes why.
func (p *progress) message() string {
	switch {
	case p.waits != "":
		return withLine(p.waits, p.line)
	case p.line != "":
		return p.line
	}
	return "waits for its share of a GPU"
}

func withLine(text, line string) string {
	if line == "" {
		return text
	}
	return text + "; last line: " + line
}
