package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// entry is a test that takes long, and when it last passed.
type entry struct {
	pkg      string   // folder of the package
	test     string   // name of the test function
	full     bool     // it runs with the flag -full of its package
	alone    bool     // it compares times, which other programs on the machine disturb
	starts   []string // packages and folders of what the test starts or reads, in addition to what its package imports
	commit   string   // at which it last passed; "-" for never
	day      string   // of that run
	took     time.Duration
	affected bool // the changes since then can break it
}

// list is the content of the file: lines that are comments, and entries.
type list struct {
	header  []string
	entries []*entry
}

// parse parses a file with a line for each test: package, test, "full", "alone" or "-", what it starts (separated by commas, or "-"), commit, day, and
// seconds. Lines that begin with # are comments; they stand at the beginning.
func parse(content string) (*list, error) {
	var l list
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			l.header = append(l.header, line)
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 7 {
			return nil, fmt.Errorf("%q has %d fields, want 7", line, len(fields))
		}
		took, err := time.ParseDuration(fields[6])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		e := &entry{pkg: fields[0], test: fields[1], full: fields[2] == "full", alone: fields[2] == "alone", commit: fields[4], day: fields[5], took: took}
		if fields[3] != "-" {
			e.starts = strings.Split(fields[3], ",")
		}
		l.entries = append(l.entries, e)
	}
	return &l, nil
}

// String returns the content of the file.
func (l *list) String() string {
	var out strings.Builder
	for _, line := range l.header {
		fmt.Fprintln(&out, line)
	}
	for _, e := range l.entries {
		how, starts := "-", "-"
		switch {
		case e.full:
			how = "full"
		case e.alone:
			how = "alone"
		}
		if len(e.starts) > 0 {
			starts = strings.Join(e.starts, ",")
		}
		fmt.Fprintf(&out, "%-22s %-26s %-5s %-22s %-10s %-10s %v\n", e.pkg, e.test, how, starts, e.commit, e.day, e.took)
	}
	return out.String()
}

// order returns the entries in the order in which they run: those that the changes can break first, and of each kind the one that has not
// passed for longest first.
func (l *list) order() []*entry {
	return slices.SortedStableFunc(slices.Values(l.entries), func(a, b *entry) int {
		if a.affected != b.affected {
			if a.affected {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.took, b.took))
	})
}

// state describes the entry for the report.
func (e *entry) state() string {
	passed := "never passed"
	if e.commit != "-" {
		passed = fmt.Sprintf("passed last on %s at %s in %v", e.day, e.commit, e.took)
	}
	if e.affected {
		passed += ", and the changes since then can break it"
	}
	return fmt.Sprintf("%s.%s: %s", e.pkg, e.test, passed)
}

// whole are the packages all of whose tests take long.
var whole = []string{"test/cluster", "test/monitoring"}

// checkComplete returns an error unless the list has all tests of the packages whose tests all take long, and no other ones of them.
func checkComplete(ctx context.Context, l *list) error {
	for _, pkg := range whole {
		found, err := functions(ctx, pkg)
		if err != nil {
			return err
		}
		var listed []string
		for _, e := range l.entries {
			if e.pkg == pkg {
				listed = append(listed, e.test)
			}
		}
		slices.Sort(found)
		slices.Sort(listed)
		if !slices.Equal(found, listed) {
			return fmt.Errorf("the tests of %s are %v, but %v are listed", pkg, found, listed)
		}
	}
	return nil
}
