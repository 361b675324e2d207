package results

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// publish replaces the table's section of RESULTS.md, which is between two markers, and returns the number of targets that the cells miss.
func (o options) publish(t table, got cells) (int, error) {
	file := filepath.Join(o.dir, "RESULTS.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	verdicts, missed := t.checkTargets(got)
	section := t.markdown(got, o.runs, o.origin) + verdicts
	page, err := replaceSection(string(text), t.name, section)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return missed, os.WriteFile(file, []byte(page), 0o644)
}

func replaceSection(page, name, section string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	head, rest, ok := strings.Cut(page, begin)
	if !ok {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no line %q", end)
	}
	return head + begin + section + end + tail, nil
}

func (t table) markdown(got cells, runs int, origin provenance) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n`gshare-lab %s`, %d seeds from 1; %s.\n\n", t.title, t.text, strings.Join(t.command, " "), runs, origin)
	b.WriteString("| |")
	for _, c := range t.columns {
		fmt.Fprintf(&b, " %s |", c.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.columns)) + "\n")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, c := range t.columns {
			fmt.Fprintf(&b, " %s |", c.text(got[r.name][c.key()]))
		}
		b.WriteByte('\n')
	}
	for _, f := range t.figures {
		fmt.Fprintf(&b, "\n![%s](figures/%s)\n", f.caption, f.file)
	}
	b.WriteByte('\n')
	return b.String()
}

func (c column) text(v cell) string {
	mean := strconv.FormatFloat(v.Mean, 'f', c.digits, 64)
	dev := strconv.FormatFloat(v.StdDev, 'f', c.digits, 64)
	if v.Runs < 2 || strings.Trim(dev, "0.") == "" {
		return mean
	}
	return mean + " ±" + dev
}
