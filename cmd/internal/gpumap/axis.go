package gpumap

import (
	"fmt"
	"strings"
	"time"
)

// margin is the columns of the SM axis: "100%┤".
const margin = 5

// sms is the SM axis beside a line: the percentage at its top edge, on every fourth part of the height.
func sms(y, height int) string {
	for quarter := range 4 {
		if y == (height*quarter+2)/4 {
			return fmt.Sprintf("%3d%%┤", 100-25*quarter)
		}
	}
	return "    │"
}

// times is the time axis below a picture, with a mark where something begins or ends.
func times(p picture) []string {
	line := []rune("  0%└" + strings.Repeat("─", p.width))
	text := []rune(strings.Repeat(" ", margin+p.width))
	write(text, margin-1, "0")
	end := fmt.Sprint(milliseconds(window), " ms")
	write(text, margin+p.width-len(end), end)
	for _, t := range p.ticks {
		if 0 < t.cell && t.cell < p.width {
			line[margin+t.cell] = '┬'
			write(text, margin+t.cell, milliseconds(t.at))
		}
	}
	return []string{string(line), string(text)}
}

// write puts a label at a column if there is space for it and around it.
func write(text []rune, column int, label string) {
	from, to := column, column+len(label)
	if from < 0 || to > len(text) || strings.TrimSpace(string(text[max(from-1, 0):min(to+1, len(text))])) != "" {
		return
	}
	copy(text[from:to], []rune(label))
}

// milliseconds writes a time with a decimal only where it is needed.
func milliseconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()*1000), ".0")
}
