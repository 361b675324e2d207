package gpumap

import (
	"io"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// glyphs are the characters that show how full a GPU is. The one for full leaves a gap at the top, so that lines of full GPUs remain
// distinct.
var glyphs = [levels]string{"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇"}

// levelColours holds the ANSI colours (of 256) that show how full a GPU is, from warm for almost empty to cool for full; 240 is grey for empty
// GPUs.
var levelColours = [levels]int{240, 209, 215, 221, 186, 150, 115, 37}

// shades holds the characters that fill the blocks of shares in a drawing without colours.
var shades = []string{"░", "▒", "▓", "█"}

// shareColours holds the ANSI background colours of the blocks of shares, on which letters are black.
var shareColours = []int{75, 215, 114, 176, 222, 80, 210, 146, 150, 180, 117, 218}

const (
	black = 16
	tile  = 236 // background of a GPU, which shows its free part
	faint = 244
)

// painter adds ANSI colour codes to text, or returns the text unchanged if colours are off.
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

// level returns the coloured characters of the overview for n GPUs that are equally full.
func (p painter) level(l level, n int) string {
	if l == gap {
		return strings.Repeat(" ", n)
	}
	return p.style.Foreground(hue(levelColours[l])).Background(hue(tile)).Render(strings.Repeat(glyphs[l], n))
}

// bar returns n columns of a thin horizontal bar in the colour of a fill level.
func (p painter) bar(l level, n int) string {
	line := map[level]string{full: "━", empty: "┄"}[l]
	if line == "" {
		line = "─"
	}
	return p.style.Foreground(hue(levelColours[l])).Render(strings.Repeat(line, n))
}

// block returns the text of a share's cells on the background of the share's colour.
func (p painter) block(b shareStyle, text string) string {
	return p.style.Bold(true).Foreground(hue(black)).Background(hue(b.hue)).Render(text)
}

func hue(n int) lipgloss.Color { return lipgloss.Color(strconv.Itoa(n)) }
