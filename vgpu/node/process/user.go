package process

import (
	"fmt"
	"os"
	"strings"
)

// User reads whose process it is: the real user. The owner of its files in /proc does not say: of one that cannot be dumped that is root.
func User(pid int) (uid int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseUser(string(text))
}

// parseUser takes the real user out of /proc/PID/status. Of the program's name, which may be anything, the kernel makes a single line.
func parseUser(status string) (uid int, err error) {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[0] == "Uid:" {
			_, err = fmt.Sscan(fields[1], &uid)
			return uid, err
		}
	}
	return 0, fmt.Errorf("%.100q is no status of a process", status)
}
