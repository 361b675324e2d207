package gpumap

import "strings"

// row is one line of the overview: how full each GPU is, with a gap between nodes.
type row []level

// rows divides the GPUs of a model into lines of the overview. GPUs of one node are on one line if they fit.
func (g group) rows(width int) []row {
	var list []row
	var line row
	for _, n := range g.nodes {
		cells := n.levels()
		if len(line) > 0 && len(line)+1+len(cells) > width {
			list, line = append(list, line), nil
		}
		for ; len(cells) > width; cells = cells[width:] {
			list = append(list, cells[:width])
		}
		if len(line) > 0 {
			line = append(line, gap)
		}
		line = append(line, cells...)
	}
	return append(list, line)
}

// levels returns how full each of the node's GPUs is.
func (n node) levels() row {
	cells := make(row, len(n.gpus))
	for at, s := range n.gpus {
		cells[at] = s.fillLevel()
	}
	return cells
}

// countLevels returns how many of the GPUs on some lines of the overview are full, partly full and empty.
func countLevels(rows []row) counts {
	var c counts
	for _, r := range rows {
		for _, l := range r {
			c.add(l)
		}
	}
	return c
}

// paint returns the line of the overview as text. Adjacent GPUs that are equally full share their colour codes.
func (r row) paint(p painter) string {
	var b strings.Builder
	for from := 0; from < len(r); {
		to := from + 1
		for to < len(r) && r[to] == r[from] {
			to++
		}
		b.WriteString(p.level(r[from], to-from))
		from = to
	}
	return b.String()
}

// distribute divides lines among GPU models. need holds the number of lines that each model could fill. Each model gets one line, and every
// further line goes to the model of which the smallest fraction is shown.
func distribute(lines int, need []int) []int {
	got := make([]int, len(need))
	for ; lines > 0; lines-- {
		poorest := nobody
		for at := range need {
			if got[at] < need[at] && (poorest == nobody || got[at]*need[poorest] < got[poorest]*need[at]) {
				poorest = at
			}
		}
		if poorest == nobody {
			break
		}
		got[poorest]++
	}
	return got
}
