package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// target is a bound on one column, in some rows: a number, or another column of the same row.
type target struct {
	rows   []string // empty: all
	column string   // key
	least  bool     // the column must be at least the bound; otherwise at most
	bound  float64
	other  string  // key of a column that is the bound instead
	times  float64 // that column's value times this; 0 is 1
	plus   float64 // and this added
	strict bool    // beyond the bound, not on it
}

func (g target) String() string {
	op := "at most"
	if g.least {
		op = "at least"
	}
	if g.strict {
		op = map[bool]string{true: "above", false: "below"}[g.least]
	}
	where := "all rows"
	if len(g.rows) > 0 {
		where = strings.Join(g.rows, ", ")
	}
	if g.other != "" {
		return fmt.Sprintf("%s %s %s%s (%s)", g.column, op, g.other, g.change(), where)
	}
	return fmt.Sprintf("%s %s %.6g (%s)", g.column, op, g.bound, where)
}

func (g target) change() string {
	text := ""
	if g.times != 0 {
		text = fmt.Sprintf(" x %g", g.times)
	}
	if g.plus != 0 {
		text += fmt.Sprintf(" %+g", g.plus)
	}
	return text
}

func (g target) met(row map[string]cell) bool {
	value, bound := row[g.column].Mean, g.bound
	if g.other != "" {
		bound = row[g.other].Mean*cmp.Or(g.times, 1) + g.plus
	}
	if !g.least {
		value, bound = -value, -bound
	}
	return value > bound || !g.strict && value == bound
}

// judge writes a line for each target and counts the missed ones.
func (t table) judge(got cells) (string, int) {
	var b strings.Builder
	missed := 0
	for _, g := range t.targets {
		var failed []string
		for _, r := range t.rows {
			if (len(g.rows) == 0 || slices.Contains(g.rows, r.name)) && !g.met(got[r.name]) {
				failed = append(failed, r.name)
			}
		}
		verdict := "met"
		if len(failed) > 0 {
			missed++
			verdict = "**missed**: " + strings.Join(failed, ", ")
		}
		fmt.Fprintf(&b, "* Target: %s: %s.\n", g, verdict)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String(), missed
}
