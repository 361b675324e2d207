package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// console shows on standard error what is going on, so that standard output stays the result. On a terminal a line is
// drawn over; elsewhere each step is one line.
type console struct {
	out   io.Writer
	live  bool
	width int
	begin time.Time
}

func newConsole() *console {
	fd := int(os.Stderr.Fd())
	c := &console{out: os.Stderr, live: term.IsTerminal(fd), width: 100, begin: time.Now()}
	if w, _, err := term.GetSize(fd); err == nil && w > 20 {
		c.width = w
	}
	return c
}

// step says what begins now.
func (c *console) step(format string, args ...any) {
	fmt.Fprintf(c.out, "%5.1fs  %s\n", time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}

// bar is the progress of one step.
type bar struct {
	console *console
	name    string
	total   int
	done    chan int
	note    string
	last    time.Time
	count   int
}

func (c *console) bar(name string, total int) *bar {
	if !c.live {
		c.step("%s: %d", name, total)
	}
	return &bar{console: c, name: name, total: total, done: make(chan int, 1)}
}

// add counts one more; callers may be concurrent.
func (b *bar) add() {
	b.done <- 0
	b.count++
	b.draw(false)
	<-b.done
}

// set says how much is done, and a word on it.
func (b *bar) set(count int, note string) {
	b.done <- 0
	b.count, b.note = count, note
	b.draw(false)
	<-b.done
}

func (b *bar) end() {
	b.draw(true)
	if b.console.live {
		fmt.Fprintln(b.console.out)
	}
}

const barCells = 30

func (b *bar) draw(now bool) {
	if !b.console.live || !now && time.Since(b.last) < 100*time.Millisecond {
		return
	}
	b.last = time.Now()
	full := min(barCells, max(0, b.count)*barCells/max(1, b.total))
	line := fmt.Sprintf("%5.1fs  %s [%-*s] %d/%d %s", time.Since(b.console.begin).Seconds(), b.name,
		barCells, stripes[:full], b.count, b.total, b.note)
	fmt.Fprintf(b.console.out, "\r\x1b[K%.*s", b.console.width-1, line)
}

const stripes = "=============================="
