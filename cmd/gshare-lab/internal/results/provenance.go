package results

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// provenance records the machine, the Go version, the date and the commit with which the cells of a table were measured.
type provenance struct {
	Machine string `json:"machine"`
	Go      string `json:"go"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
}

func (p provenance) String() string {
	return fmt.Sprintf("%s, %s, %s, commit %s", p.Machine, p.Go, p.Date, p.Commit)
}

func currentProvenance() provenance {
	return provenance{
		Machine: fmt.Sprintf("%d cores of %s", runtime.NumCPU(), cpuModel()), Go: runtime.Version(),
		Date: time.Now().UTC().Format(time.DateOnly), Commit: gitCommit(),
	}
}

// cpuModel returns the model name of the CPU from /proc/cpuinfo, or the architecture if there is none.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// gitCommit returns the short hash of the checked-out Git commit, followed by a plus sign if tracked files were changed since.
func gitCommit() string {
	text, err := exec.Command("git", "describe", "--always", "--exclude", "*", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
