package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// allowList holds patterns of the tests that may be skipped, as package.Test. A pattern may end in *.
type allowList []string

// readAllowList parses a file with one pattern per line, followed by the reason why the test may be skipped. Lines that begin with # are
// comments.
func readAllowList(in io.Reader) (allowList, error) {
	var list allowList
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(strings.Fields(line)) < 2 {
			return nil, fmt.Errorf("line %d: %q gives no reason", number, line)
		}
		list = append(list, strings.Fields(line)[0])
	}
	return list, lines.Err()
}

func (l allowList) allows(test string) bool {
	for _, pattern := range l {
		prefix, open := strings.CutSuffix(pattern, "*")
		if pattern == test || open && strings.HasPrefix(test, prefix) {
			return true
		}
	}
	return false
}
