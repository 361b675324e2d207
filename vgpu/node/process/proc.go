package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// StartTime returns when a process started, in clock ticks since boot. PID and start time together identify a process until the next boot.
func StartTime(pid int) (ticks uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStartTime(string(text))
}

// parseStartTime returns field 22 (starttime) of /proc/PID/stat. Field 2, the program's name, may contain any character and ends at the
// last closing parenthesis.
func parseStartTime(stat string) (uint64, error) {
	_, rest, found := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	const at = 22 - 3 // the first field after the name is number 3
	if !found || len(fields) <= at {
		return 0, fmt.Errorf("parse state of a process: %.100q", stat)
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

// Program returns the base name of a process's executable file, or an empty string if it cannot be read.
func Program(pid int) string {
	file, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSuffix(file, " (deleted)")) // replaced by an update
}

// User returns the real user ID of a process. It does not use the owner of the process's files in /proc, which is root for a process that
// cannot be dumped.
func User(pid int) (uid int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseUser(string(text))
}

// parseUser returns the real user ID in the content of /proc/PID/status.
func parseUser(status string) (uid int, err error) {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[0] == "Uid:" {
			_, err = fmt.Sscan(fields[1], &uid)
			return uid, err
		}
	}
	return 0, fmt.Errorf("parse status of a process: %.100q", status)
}
