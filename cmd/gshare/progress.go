package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progress draws a bar on standard error while the caller works, if that is a terminal; otherwise it is silent.
type progress struct {
	name        string
	total, done int
	live        bool
	begin, last time.Time
	text        string
}

func newProgress(name string, total int) *progress {
	return &progress{name: name, total: total, live: term.IsTerminal(int(os.Stderr.Fd())), begin: time.Now()}
}

func (p *progress) note(text string) {
	p.text = text
	p.draw()
}

func (p *progress) add() {
	p.done++
	p.draw()
}

func (p *progress) end() {
	if p.live {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

const progressCells = 30

func (p *progress) draw() {
	if !p.live || time.Since(p.last) < 50*time.Millisecond {
		return
	}
	p.last = time.Now()
	full := p.done * progressCells / max(1, p.total)
	fmt.Fprintf(os.Stderr, "\r\x1b[K%5.1fs %s [%-*s] %d/%d %s", time.Since(p.begin).Seconds(), p.name,
		progressCells, strings.Repeat("=", full), p.done, p.total, p.text)
}
