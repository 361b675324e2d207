package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
)

const asNode = "GSHARE_TEST_MAIN"

// patience bounds the wait for what must come about: long, so that a busy machine fails no test.
const patience = time.Minute

// TestMain lets the test binary be gshare-node itself.
func TestMain(m *testing.M) {
	if os.Getenv(asNode) != "" {
		main()
		return
	}
	code := m.Run()
	_ = os.RemoveAll(build.folder)
	os.Exit(code)
}

// machine is what an agent is started on: a directory, one simulated device, a configuration.
type machine struct{ dir, config string }

const head = "apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\n"

// newMachine takes more lines of the configuration.
func newMachine(t *testing.T, lines ...string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "gs") // short enough for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	devices := write(t, filepath.Join(dir, "devices.yaml"),
		"devices:\n- {uuid: "+uuid+", model: A100, sms: 108, memoryMiB: 16384}\n")
	config := head + "directory: " + filepath.Join(dir, "run") + "\nsimulatedDevices: " + devices + "\n"
	return &machine{dir, write(t, filepath.Join(dir, "node.yaml"), config+strings.Join(lines, "\n")+"\n")}
}

// uuid is that of the fake driver's first device.
const uuid = "GPU-00000000-0000-0000-0000-000000000000"

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (m *machine) socket() string { return filepath.Join(m.dir, "run", "control.sock") }

// node is gshare-node with the given arguments.
func node(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asNode+"=1", "XDG_RUNTIME_DIR=/nowhere", "NODE_NAME=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// instance is a running program, such as gshare-node.
type instance struct {
	*exec.Cmd
	ready chan struct{}
	done  chan struct{} // its standard error has ended

	mu  sync.Mutex // guards log
	log strings.Builder
}

// start starts an agent and waits until it serves.
func (m *machine) start(t *testing.T) *instance {
	t.Helper()
	return startInstance(t, node("--standalone", "--config", m.config), "msg=ready")
}

// startInstance starts a program and waits until it has written a line with the text to its standard error.
func startInstance(t *testing.T, cmd *exec.Cmd, text string) *instance {
	t.Helper()
	a := &instance{Cmd: cmd, ready: make(chan struct{}), done: make(chan struct{})}
	stderr, err := a.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	go a.read(bufio.NewScanner(stderr), text)
	t.Cleanup(func() { a.end(syscall.SIGKILL) })
	select {
	case <-a.ready:
	case <-a.done:
		t.Fatalf("it ends: %s", a.text())
	case <-time.After(patience):
		t.Fatalf("it is not ready: %s", a.text())
	}
	return a
}

func (a *instance) read(lines *bufio.Scanner, text string) {
	defer close(a.done)
	for ready := false; lines.Scan(); {
		a.mu.Lock()
		fmt.Fprintln(&a.log, lines.Text())
		a.mu.Unlock()
		if !ready && strings.Contains(lines.Text(), text) {
			ready = true
			close(a.ready)
		}
	}
}

func (a *instance) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.String()
}

// end sends a signal and waits for the end; it gives the exit code, -1 for an end by a signal.
func (a *instance) end(s syscall.Signal) int {
	_ = a.Process.Signal(s)
	<-a.done
	_ = a.Wait()
	return a.ProcessState.ExitCode()
}

// status asks the agent how the machine is shared.
func (m *machine) status() (status control.Status, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.socket())
		}}}
	response, err := client.Get("http://agent" + control.StatusPath)
	if err != nil {
		return status, err
	}
	defer response.Body.Close()
	return status, json.NewDecoder(response.Body).Decode(&status)
}

func (m *machine) mustStatus(t *testing.T) control.Status {
	t.Helper()
	status, err := m.status()
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventuallyWithin(t, patience, what, holds)
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

// statusOf says how a program ended, if it did not end well.
func statusOf(err error) (status syscall.WaitStatus, ok bool) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return status, false
	}
	status, ok = exit.Sys().(syscall.WaitStatus)
	return status, ok
}
