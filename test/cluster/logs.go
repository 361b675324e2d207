package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/executable"
)

// keepLogs copies the logs into a folder below the one that GSHARE_CLUSTER_LOGS names, if it does.
func (c *Cluster) keepLogs(test string) error {
	folder := os.Getenv("GSHARE_CLUSTER_LOGS")
	if folder == "" || c.Dir == "" {
		return nil
	}
	folder = filepath.Join(folder, strings.ReplaceAll(test, "/", "-")+"-"+filepath.Base(c.Dir))
	return os.CopyFS(folder, os.DirFS(filepath.Join(c.Dir, "logs")))
}

func (c *Cluster) showLogs(t testing.TB) {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "logs", "*.log")) // the pattern is right
	for _, log := range logs {
		t.Logf("end of %s:\n%s", filepath.Base(log), executable.LogTail(log))
	}
}
