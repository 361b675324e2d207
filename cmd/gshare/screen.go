package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/cmd/internal/output"
)

// screen is an io.Writer for a log. On a terminal it shows a table below the log.
type screen struct {
	log   io.Writer
	table io.Writer // nil without a terminal
	same  bool      // log and table are on the same terminal
	stop  func()

	mu    sync.Mutex // guards what follows
	text  string     // of the table
	lines int        // of the table on the terminal
}

// newScreen returns a screen that shows tables on out if that is a terminal, and writes the log to errOut.
func newScreen(out, errOut io.Writer) *screen {
	s := &screen{log: errOut, stop: func() {}}
	if _, ok := output.Terminal(out); ok {
		s.table = out
		_, s.same = output.Terminal(errOut)
	}
	return s
}

// Write implements io.Writer.
func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil || !s.same {
		return s.log.Write(text)
	}
	s.erase()
	n, err := s.log.Write(text)
	s.draw()
	return n, err
}

// show shows what render returns for the width of the terminal, and calls it again every second. It does nothing without a terminal.
func (s *screen) show(render func(width int) string) {
	if s.table == nil {
		return
	}
	stop, done := make(chan struct{}), make(chan struct{})
	s.stop = func() { close(stop); <-done }
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			width, _ := output.Terminal(s.table)
			text := render(width) // without the lock: what render calls may be writing to the screen
			s.mu.Lock()
			s.erase()
			s.text = text
			s.draw()
			s.mu.Unlock()
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
}

// end removes the table.
func (s *screen) end() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.table = nil
}

func (s *screen) erase() {
	if s.lines > 0 {
		fmt.Fprintf(s.table, "\x1b[%dA\x1b[J", s.lines)
		s.lines = 0
	}
}

func (s *screen) draw() {
	_, _ = io.WriteString(s.table, s.text) // if the terminal has gone, there is nothing to do
	s.lines = strings.Count(s.text, "\n")
}
