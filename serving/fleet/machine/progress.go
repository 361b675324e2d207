package machine

import (
	"strings"
	"sync"
)

// progress is what a process waits for until it is ready, and the last line that it has written. Until then each change is reported, in order.
type progress struct {
	report func(message string) // called with the mutex held

	mu       sync.Mutex // guards what follows
	waits    string     // what the process waits for; empty while gshare run waits for the share
	line     string     // the last line that it has written
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

// explain returns how a process has ended, together with its last line.
func (p *progress) explain(end string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == "" {
		return end
	}
	return end + ": " + p.line
}

// explainOverdue returns what a process has waited for too long, together with its last line.
func (p *progress) explainOverdue(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return withLine(text, p.line)
}

// end stops all further reports.
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

// message returns what to report. While gshare run waits for the share, its last line says why.
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
