package cluster_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/test/cluster"
)

// TestLeavesNothing starts a cluster in a process that is then killed, and another cluster in this process. The start of the second
// cluster must remove what the first process left behind, and nothing may be left when it ends.
func TestLeavesNothing(t *testing.T) {
	if os.Getenv(killedEnvironment) != "" {
		waitForKill(t)
	}
	before := settings(t)
	var dirs []string
	t.Run("clusters", func(t *testing.T) {
		dirs = append(dirs, killedCluster(t))
		c := cluster.Start(t, cluster.Options{Nodes: 1})
		dirs = append(dirs, c.Dir)
		runOn(t, c, c.Nodes[0], "pod")
		if found := find(t, c.Dir); len(found.processes) < 8 || len(found.cgroups) == 0 || len(found.files) == 0 {
			t.Errorf("a running cluster shows only %v", found)
		}
	})
	for _, dir := range dirs {
		if found := find(t, dir); !found.none() {
			t.Errorf("%s left %v", dir, found)
		}
	}
	if diff := cmp.Diff(before, settings(t)); diff != "" {
		t.Errorf("this machine has changed:\n%s", diff)
	}
}

// killedCluster starts a cluster in another process, kills that process when a pod runs, and returns the cluster's directory.
func killedCluster(t *testing.T) string {
	t.Helper()
	ctx := testContext(t)
	command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLeavesNothing$", "-test.v")
	command.Env = append(os.Environ(), killedEnvironment+"=1")
	output := must[io.ReadCloser](t)(command.StdoutPipe())
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	dir, said := "", strings.Builder{}
	for lines := bufio.NewScanner(output); dir == "" && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		_, dir, _ = strings.Cut(lines.Text(), killedPrefix)
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	switch {
	case dir == "" && strings.Contains(said.String(), "--- SKIP"):
		t.Skip(said.String())
	case dir == "":
		t.Fatal("the cluster to be killed did not run: " + said.String())
	}
	for len(find(t, dir).processes) > 0 {
		select {
		case <-ctx.Done():
			t.Fatalf("processes outlive their maker: %v", find(t, dir).processes)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if found := find(t, dir); len(found.mounts) > 0 || len(found.cgroups) == 0 || len(found.files) == 0 {
		t.Errorf("a killed cluster left %v, not only cgroups and files", found)
	}
	return dir
}

const (
	killedEnvironment = "GSHARE_CLUSTER_TO_BE_KILLED"
	killedPrefix      = "killed cluster is in "
)

// waitForKill is the main function of the process that killedCluster kills.
func waitForKill(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 1})
	runOn(t, c, c.Nodes[0], "pod")
	fmt.Println(killedPrefix + c.Dir)
	select {}
}
