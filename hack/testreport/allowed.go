package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// allowList holds the patterns of the tests that may be skipped: package.Test, where a * at the end stands for anything.
type allowList []string

// readAllowList reads one pattern a line, each with the reason why the test may be skipped. # opens a comment.
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
