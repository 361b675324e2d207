package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Console prints the steps of a long command and their progress on standard error, which keeps standard output free for the result.
type Console struct {
	out   io.Writer
	live  bool // a terminal: progress bars are redrawn in place
	width int
	begin time.Time
}

// NewConsole returns a console on standard error. The seconds that it prints count from now.
func NewConsole() *Console {
	fd := int(os.Stderr.Fd())
	c := &Console{out: os.Stderr, live: term.IsTerminal(fd), width: 100, begin: time.Now()}
	if w, _, err := term.GetSize(fd); err == nil && w > 20 {
		c.width = w
	}
	return c
}

// Step prints a message, preceded by the seconds since the console was created.
func (c *Console) Step(format string, args ...any) {
	fmt.Fprintf(c.out, "%5.1fs  %s\n", time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}

// Bar starts a progress bar that ends at total units. Without a terminal, it prints a single line.
func (c *Console) Bar(name string, total int) *Bar {
	if !c.live {
		c.Step("%s: %d", name, total)
	}
	return &Bar{console: c, name: name, total: total}
}

// NewBar starts a progress bar on standard error. It prints nothing if that is not a terminal.
func NewBar(name string, total int) *Bar {
	return &Bar{console: NewConsole(), name: name, total: total}
}

// Bar is the progress bar of one step. Its methods may be called concurrently.
type Bar struct {
	console *Console
	name    string
	total   int

	mu    sync.Mutex // guards what follows
	count int
	note  string
	drawn time.Time
}

// Add increments the number of finished units by one.
func (b *Bar) Add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	b.draw()
}

// Note sets the remark shown beside the bar.
func (b *Bar) Note(note string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note = note
	b.draw()
}

// Set sets the number of finished units and the remark beside the bar.
func (b *Bar) Set(count int, note string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count, b.note = count, note
	b.draw()
}

// End draws the bar for the last time and leaves it on the terminal.
func (b *Bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.console.live {
		b.drawn = time.Time{}
		b.draw()
		fmt.Fprintln(b.console.out)
	}
}

// Clear removes the bar from the terminal.
func (b *Bar) Clear() {
	if b.console.live {
		fmt.Fprint(b.console.out, "\r\x1b[K")
	}
}

const barCells = 30

func (b *Bar) draw() {
	if !b.console.live || time.Since(b.drawn) < 100*time.Millisecond {
		return
	}
	b.drawn = time.Now()
	full := min(barCells, max(0, b.count)*barCells/max(1, b.total))
	line := fmt.Sprintf("%5.1fs  %s [%-*s] %d/%d %s", time.Since(b.console.begin).Seconds(), b.name,
		barCells, strings.Repeat("=", full), b.count, b.total, b.note)
	fmt.Fprintf(b.console.out, "\r\x1b[K%.*s", b.console.width-1, line)
}

// Width returns the terminal's number of columns, or 100 if standard error is not a terminal.
func (c *Console) Width() int { return c.width }
