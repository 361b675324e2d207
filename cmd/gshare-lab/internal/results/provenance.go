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

// provenance is where and when figures were measured.
type provenance struct {
	Machine string `json:"machine"`
	Go      string `json:"go"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
}

func (p provenance) String() string {
	return fmt.Sprintf("%s, %s, %s, commit %s", p.Machine, p.Go, p.Date, p.Commit)
}

func here() provenance {
	return provenance{
		Machine: fmt.Sprintf("%d cores of %s", runtime.NumCPU(), processor()), Go: runtime.Version(),
		Date: time.Now().UTC().Format(time.DateOnly), Commit: commit(),
	}
}

// processor returns the name of the CPU from /proc/cpuinfo, or the architecture if there is none.
func processor() string {
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

// commit returns the commit that is checked out, with a plus if files differ from it.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--exclude", "*", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
