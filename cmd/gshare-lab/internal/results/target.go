package results

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// target is a bound that the cells of a column must keep in some or all rows: a number, or computed from another column of the same row.
type target struct {
	rows   []string // empty: all
	where  []target // only rows whose cells meet all of these; there must be such a row
	column string   // key
	least  bool     // the column must be at least the bound; otherwise at most
	bound  float64
	other  string  // key of a column that gives the bound instead
	times  float64 // that column's value times this; 0 is 1
	plus   float64 // added to that product
	strict bool    // a cell equal to the bound misses the target
}

func (g target) String() string {
	where := "all rows"
	switch {
	case len(g.where) > 0:
		where = "where " + join(g.where)
	case len(g.rows) > 0:
		where = strings.Join(g.rows, ", ")
	}
	return fmt.Sprintf("%s (%s)", g.condition(), where)
}

func join(list []target) string {
	var demands []string
	for _, g := range list {
		demands = append(demands, g.condition())
	}
	return strings.Join(demands, " and ")
}

// condition returns the target as text, without the rows that it applies to.
func (g target) condition() string {
	op := "at most"
	if g.least {
		op = "at least"
	}
	if g.strict {
		op = map[bool]string{true: "above", false: "below"}[g.least]
	}
	if g.other != "" {
		return fmt.Sprintf("%s %s %s%s", g.column, op, g.other, g.change())
	}
	return fmt.Sprintf("%s %s %.6g", g.column, op, g.bound)
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

// appliesTo reports whether the target applies to the row with this name and these cells.
func (g target) appliesTo(name string, row map[string]cell) bool {
	for _, w := range g.where {
		if !w.met(row) {
			return false
		}
	}
	return len(g.rows) == 0 || slices.Contains(g.rows, name)
}

// checkTargets returns a Markdown line for each target, and the number of missed targets. A target that applies to no row is missed.
func (t table) checkTargets(got cells) (string, int) {
	var b strings.Builder
	missed := 0
	for _, g := range t.targets {
		rows := 0
		var failed []string
		for _, r := range t.rows {
			if !g.appliesTo(r.name, got[r.name]) {
				continue
			}
			if rows++; !g.met(got[r.name]) {
				failed = append(failed, r.name)
			}
		}
		verdict := "met"
		if rows == 0 || len(failed) > 0 {
			missed++
			verdict = "**missed**: " + cmp.Or(strings.Join(failed, ", "), "no such row")
		}
		fmt.Fprintf(&b, "* Target: %s: %s.\n", g, verdict)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String(), missed
}
