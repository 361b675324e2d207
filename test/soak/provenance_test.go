package soak_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// provenance says where, when and with what a result was measured, as in the other results of test/bench.
type provenance struct {
	Machine string `json:"machine"`
	Go      string `json:"go"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	Busy    string `json:"busy"` // the load averages at the end of the run, as in /proc/loadavg
}

func currentProvenance() provenance {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	commit := "unknown"
	if text, err := exec.Command("git", "describe", "--always", "--exclude", "*", "--dirty=+").Output(); err == nil {
		commit = strings.TrimSpace(string(text))
	}
	busy, _ := os.ReadFile("/proc/loadavg") // empty where /proc does not exist
	return provenance{
		Machine: fmt.Sprintf("%d cores of %s", runtime.NumCPU(), model), Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly), Commit: commit,
		Busy: strings.TrimSpace(string(busy)),
	}
}

func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return text.Bytes(), err
}
