package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/controlplane"
)

const parentDirectory = "CONTROLPLANE_TEST_PARENT"

// runAsParent is the main function of a process that starts a control plane and waits to be killed.
func runAsParent() {
	dir := os.Getenv(parentDirectory)
	if dir == "" {
		return
	}
	c, err := controlplane.Start(context.Background(), controlplane.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(strings.TrimPrefix(c.APIServer.URL, "https://"))
	select {}
}

func TestChildrenDieWithParent(t *testing.T) {
	ctx := testContext(t)
	parent := exec.CommandContext(ctx, os.Args[0])
	parent.Env = append(os.Environ(), parentDirectory+"="+t.TempDir())
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	address = strings.TrimSpace(address)
	if err == nil && !serves(address) {
		t.Errorf("no API server at %q", address)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	gone := func(context.Context) (bool, error) { return !serves(address), nil }
	if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, gone); err != nil {
		t.Errorf("the API server outlives its parent: %v", err)
	}
}

func serves(address string) bool {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}
