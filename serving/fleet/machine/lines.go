package machine

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
)

// maxLine is the length in bytes to which lines are cut.
const maxLine = 4096

// lines is an io.Writer that calls a function with each line.
type lines struct {
	line func(text string)

	mu   sync.Mutex // guards what follows
	rest []byte     // the line that has not ended yet
}

// Write implements io.Writer. It never fails.
func (l *lines) Write(text []byte) (int, error) {
	n := len(text)
	for len(text) > 0 {
		at := bytes.IndexAny(text, "\n\r") // programs redraw progress bars with \r
		if at < 0 {
			l.add(text)
			break
		}
		l.add(text[:at])
		l.flush()
		text = text[at+1:]
	}
	return n, nil
}

// add adds text to the line that has not ended, up to maxLine.
func (l *lines) add(text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text[:min(len(text), maxLine-len(l.rest))]...)
}

// flush ends the current line and passes it on, unless it is empty.
func (l *lines) flush() {
	l.mu.Lock()
	text := strings.TrimSpace(strings.Map(printable, string(l.rest)))
	l.rest = l.rest[:0]
	l.mu.Unlock()
	if text != "" {
		l.line(text)
	}
}

// printable drops control characters, which could move the cursor of a terminal.
func printable(r rune) rune {
	if unicode.IsPrint(r) || r == '\t' {
		return r
	}
	return -1
}
