package gpumap

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// columns returns the number of terminal columns that a text takes, not counting colour codes.
func columns(s string) int { return lipgloss.Width(s) }

// shorten truncates a text to a width by removing its middle, because names of pods differ at their ends.
func shorten(s string, width int) string {
	s = output.Line(s)
	if columns(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	tail := lastColumns(s, (width-1)/2)
	return firstColumns(s, width-1-columns(tail)) + "…" + tail
}

// firstColumns returns the longest prefix of s that fits into a number of columns.
func firstColumns(s string, width int) string {
	r := []rune(s)
	for len(r) > 0 && columns(string(r)) > width {
		r = r[:len(r)-1]
	}
	return string(r)
}

// lastColumns returns the longest suffix of s that fits into a number of columns.
func lastColumns(s string, width int) string {
	r := []rune(s)
	for len(r) > 0 && columns(string(r)) > width {
		r = r[1:]
	}
	return string(r)
}

func pad(s string, width int) string { return s + strings.Repeat(" ", max(width-columns(s), 0)) }

// joinLines joins phrases with a separator into lines of the given width. It breaks a phrase that is longer than a line between words.
func joinLines(pieces []string, between string, width int) []string {
	var lines []string
	for _, piece := range pieces {
		if words := strings.Fields(piece); columns(piece) > width && len(words) > 1 {
			lines = append(lines, joinLines(words, " ", width)...)
			continue
		}
		last := len(lines) - 1
		if last >= 0 && columns(lines[last])+columns(between)+columns(piece) <= width {
			lines[last] += between + piece
		} else {
			lines = append(lines, piece)
		}
	}
	return lines
}

// firstFitting returns the first of several wordings that fits into a width, or the last one truncated.
func firstFitting(width int, wordings ...string) string {
	for _, s := range wordings {
		if columns(s) <= width {
			return s
		}
	}
	return shorten(wordings[len(wordings)-1], width)
}

// countOf returns a count with its noun, such as "1 GPU" or "2 GPUs".
func countOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// formatMemory formats a memory size in the largest unit in which it is at least one, with a decimal only if it is not whole.
func formatMemory(b share.Bytes) string {
	units := []string{"MiB", "GiB", "TiB", "PiB"}
	size, at := float64(b)/float64(share.MiB), 0
	for ; size >= 1024 && at < len(units)-1; at++ {
		size /= 1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", size), ".0") + " " + units[at]
}
