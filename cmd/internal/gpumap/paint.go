package gpumap

import (
	"io"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// glyphs are the characters of the levels. The highest leaves a hairline, so that one sees the lines of a wall of full GPUs.
var glyphs = [levels]string{"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇"}

// heat are the colours of the levels: calm where a GPU is full, warm where most of it is left over.
var heat = [levels]int{240, 209, 215, 221, 186, 150, 115, 37}

// shades fill the blocks of shares where there is no colour.
var shades = []string{"░", "▒", "▓", "█"}

// hues are the colours of the blocks of shares; letters on them are black.
var hues = []int{75, 215, 114, 176, 222, 80, 210, 146, 150, 180, 117, 218}

const (
	black = 16
	tile  = 236 // behind the level of a GPU, so that one sees how much is missing
	faint = 244
)

// painter turns text into coloured text, or leaves it as it is.
type painter struct{ style lipgloss.Style }

func newPainter(color bool) painter {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.Ascii)
	if color {
		r.SetColorProfile(termenv.ANSI256)
	}
	return painter{r.NewStyle().Inline(true)}
}

func (p painter) strong(s string) string { return p.style.Bold(true).Render(s) }

func (p painter) faint(s string) string { return p.style.Foreground(hue(faint)).Render(s) }

// level writes n GPUs of a level.
func (p painter) level(l level, n int) string {
	if l == gap {
		return strings.Repeat(" ", n)
	}
	return p.style.Foreground(hue(heat[l])).Background(hue(tile)).Render(strings.Repeat(glyphs[l], n))
}

// bar writes n columns of a thin bar.
func (p painter) bar(l level, n int) string {
	line := map[level]string{full: "━", empty: "┄"}[l]
	if line == "" {
		line = "─"
	}
	return p.style.Foreground(hue(heat[l])).Render(strings.Repeat(line, n))
}

// block writes cells of a share.
func (p painter) block(b look, text string) string {
	return p.style.Bold(true).Foreground(hue(black)).Background(hue(b.hue)).Render(text)
}

func hue(n int) lipgloss.Color { return lipgloss.Color(strconv.Itoa(n)) }
