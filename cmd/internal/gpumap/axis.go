package gpumap

import (
	"fmt"
	"strings"
	"time"
)

// margin is the width of the SM axis in columns: "100%┤".
const margin = 5

// smAxis returns the text of the SM axis on one line of a drawing. It labels every quarter of the height with its percentage.
func smAxis(y, height int) string {
	for quarter := range 4 {
		if y == (height*quarter+2)/4 {
			return fmt.Sprintf("%3d%%┤", 100-25*quarter)
		}
	}
	return "    │"
}

// timeAxis returns the lines of the time axis below a drawing, with a tick where a share starts or stops running.
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

// putLabel writes a label into a line at a column, if there is space for it and a blank on each side.
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
