package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Program is the name of the file that a process runs; empty where the kernel does not say.
func Program(pid int) string {
	file, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSuffix(file, " (deleted)")) // replaced by an update
}
