package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Born reads when a process started, in ticks since boot. With the PID it names the process for good.
func Born(pid int) (ticks uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseBorn(string(text))
}

// parseBorn takes the start time, field 22, out of /proc/PID/stat. The second field, the name, may hold anything; it ends
// with the last parenthesis.
func parseBorn(stat string) (uint64, error) {
	_, rest, found := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	const at = 22 - 3 // the first field after the name is number 3
	if !found || len(fields) <= at {
		return 0, fmt.Errorf("%.100q is no state of a process", stat)
	}
	return strconv.ParseUint(fields[at], 10, 64)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
