package gpumap

import (
	"fmt"
	"strings"
	"time"
)

// margin is the columns of the SM axis: "100%┤".
const margin = 5

// smAxis returns the SM axis beside a line. Every quarter of the height has the percentage at its top edge.
func smAxis(y, height int) string {
	for quarter := range 4 {
		if y == (height*quarter+2)/4 {
			return fmt.Sprintf("%3d%%┤", 100-25*quarter)
		}
	}
	return "    │"
}

// timeAxis returns the time axis below a picture, with a tick where a block begins or ends.
func timeAxis(p picture) []string {
	line := []rune("  0%└" + strings.Repeat("─", p.width))
	text := []rune(strings.Repeat(" ", margin+p.width))
	putLabel(text, margin-1, "0")
	end := fmt.Sprint(milliseconds(p.window), " ms")
	putLabel(text, margin+p.width-len(end), end)
	for _, t := range p.ticks {
		if 0 < t.cell && t.cell < p.width {
			line[margin+t.cell] = '┬'
			putLabel(text, margin+t.cell, milliseconds(t.at))
		}
	}
	return []string{string(line), string(text)}
}

// putLabel writes a label at a column if it fits with a space on each side.
func putLabel(text []rune, column int, label string) {
	from, to := column, column+len(label)
	if from < 0 || to > len(text) || strings.TrimSpace(string(text[max(from-1, 0):min(to+1, len(text))])) != "" {
		return
	}
	copy(text[from:to], []rune(label))
}

// milliseconds formats a duration in ms, with a decimal only if it is not whole.
func milliseconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()*1000), ".0")
}
