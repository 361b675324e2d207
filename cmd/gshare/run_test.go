package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/hookfile"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/standalone"
	"github.com/gshare-dev/gshare/test/fake/hook"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const asGshare = "GSHARE_TEST_MAIN"

// TestMain lets the test binary be gshare itself, also where gshare serve starts gshare run.
func TestMain(m *testing.M) {
	if os.Getenv(asGshare) == "" && (len(os.Args) < 2 || os.Args[1] != "run") {
		os.Exit(m.Run())
	}
	os.Unsetenv(asGshare)
	main()
}

// machine is an agent with one simulated device.
type machine struct {
	*standalone.Node
	socket, hook string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "gs") // short enough for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	node, err := standalone.New(standalone.Options{
		Config:  config.Configuration{Directory: dir, ContextReserveMiB: new(int64(0))}.WithDefaults(),
		Devices: []gpu.Device{{UUID: "GPU-0", Model: "A100", SMs: 108, Memory: 80 << 30}},
		MPS:     mps.Daemons{Simulated: true}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{node, filepath.Join(dir, config.ControlSocket), fakeHook(t)}
	listener, err := net.Listen("unix", m.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := node.NewHTTPServer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
		node.Close()
	})
	return m
}

// fakeHook returns the path of a hook that does nothing, which is not executable.
func fakeHook(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), hookfile.Name)
	hook.Write(t, path)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func (m *machine) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(args[:1:1], append([]string{"--socket", m.socket}, args[1:]...)...)...)
	cmd.Env = append(os.Environ(), asGshare+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// run is gshare run with a share and then the arguments.
func (m *machine) run(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	return m.command(t, append([]string{"run", "--hook", m.hook, "--sm", "60", "--quota", "60", "--mem", "8Gi"}, args...)...)
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

func TestRunPassesTheProgramThrough(t *testing.T) {
	m := newMachine(t)
	cmd, out := m.run(t, "--", "sh", "-c", `read line; echo "$line $GSHARE_DIR $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $LD_PRELOAD"; exit 7`)
	cmd.Stdin = strings.NewReader("hello\n")
	err := cmd.Run()
	want := "hello " + filepath.Join(m.Config.Directory, "runs")
	if code := codeOf(t, err); code != 7 || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), " 60 "+m.hook) {
		t.Errorf("code %d, output %s", code, out)
	}
}

func TestRunKeepsThePreload(t *testing.T) {
	if got := preloadValue("/a.so", "/b.so"); got != "/a.so:/b.so" {
		t.Error(got)
	}
}

func TestSignalReachesTheProgram(t *testing.T) {
	m := newMachine(t)
	cmd, _ := m.run(t, "--", "sh", "-c", `trap 'exit 3' INT; echo ready >&3; while :; do sleep 0.01; done`)
	ready, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd.ExtraFiles = []*os.File{end}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	if _, err := ready.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(t, cmd.Wait()); code != 3 {
		t.Errorf("code %d", code)
	}
	waitFor(t, func() bool { return len(m.Status().Runs) == 0 })
}

func TestDeathBySignalPassesThrough(t *testing.T) {
	m := newMachine(t)
	cmd, _ := m.run(t, "--", "sh", "-c", "kill -TERM $$")
	_ = cmd.Run()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition is not met in time")
		}
	}
}

func TestRunRefusals(t *testing.T) {
	m := newMachine(t)
	other := filepath.Join(t.TempDir(), "other.so")
	hook.Compile(t, other, "")
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"too large":      {[]string{"--mem", "90Gi", "--", "true"}, 2, "these would fit: --mem 81920Mi"},
		"sm-limit":       {[]string{"--sm-limit", "80", "--", "true"}, 2, "--sm-limit: SMs above the request"},
		"quota":          {[]string{"--quota", "101", "--", "true"}, 2, "--quota: 101"},
		"isolation":      {[]string{"--isolation", "elastic", "--", "true"}, 2, "--isolation: elastic needs quota 100%"},
		"class":          {[]string{"--class", "gold", "--", "true"}, 2, "--class: "},
		"devices":        {[]string{"--sm", "200", "--quota", "100", "--", "true"}, 2, "--vgpu: "},
		"memory":         {[]string{"--mem", "8", "--", "true"}, 2, "--mem: 8 is less than 1Mi"},
		"memory text":    {[]string{"--mem", "lots", "--", "true"}, 2, "--mem: "},
		"no hook":        {[]string{"--hook", "/nowhere.so", "--", "true"}, 2, "--hook: "},
		"other file":     {[]string{"--hook", "/etc/passwd", "--", "echo", "ran"}, 2, "--hook: /etc/passwd is not the hook"},
		"other library":  {[]string{"--hook", other, "--", "echo", "ran"}, 2, "it is another library"},
		"empty hook":     {[]string{"--hook", os.DevNull, "--", "echo", "ran"}, 2, "it is no file"},
		"no program":     {nil, 2, "no program given"},
		"unknown flag":   {[]string{"--gpu", "1", "--", "true"}, 2, "--gpu"},
		"missing":        {[]string{"--", "/nowhere/program"}, 127, "/nowhere/program"},
		"not executable": {[]string{"--", m.hook}, 126, m.hook},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := m.run(t, test.args...)
			code := codeOf(t, cmd.Run())
			if code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("code %d, want %d: %s", code, test.code, out)
			}
		})
	}
	waitFor(t, func() bool { return len(m.Status().Runs) == 0 })
}

func TestNoAgent(t *testing.T) {
	m := &machine{socket: filepath.Join(t.TempDir(), "none"), hook: fakeHook(t)}
	cmd, out := m.run(t, "--", "true")
	if code := codeOf(t, cmd.Run()); code != 1 || !strings.Contains(out.String(), "gshare-node --standalone") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestRunSaysThatTheAgentIsSlow has an agent that does not answer, as while the kernel delays the move into a cgroup.
func TestRunSaysThatTheAgentIsSlow(t *testing.T) {
	dir, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m := &machine{socket: filepath.Join(dir, "control.sock"), hook: fakeHook(t)}
	listener, err := net.Listen("unix", m.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cmd, _ := m.run(t, "--", "true")
	cmd.Stderr = nil
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	end := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer end.Reset(0)
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "waiting for the agent") {
		t.Errorf("%q, %v", line, err)
	}
}

func TestRunWaits(t *testing.T) {
	m := newMachine(t)
	first, _ := m.run(t, "--", "cat")
	input, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(m.Status().Runs) == 1 })
	second, out := m.run(t, "--wait", "--", "echo", "at last")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	input.Close()
	_ = first.Wait()
	if err := second.Wait(); err != nil || !strings.Contains(out.String(), "at last") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestPsAndTop(t *testing.T) {
	m := newMachine(t)
	run, _ := m.run(t, "--name", "mine", "--", "cat")
	input, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(m.Status().Runs) == 1 })
	for _, args := range [][]string{{"ps"}, {"ps", "-o", "json"}, {"top", "--times", "1"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			cmd, out := m.command(t, args...)
			if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "mine") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	cmd, out := m.command(t, "ps", "-o", "xml")
	if code := codeOf(t, cmd.Run()); code != 2 {
		t.Errorf("code %d: %s", code, out)
	}
	input.Close()
	_ = run.Wait()
}

// TestSet: set changes the limit of a run, or prints why it does not.
func TestSet(t *testing.T) {
	m := newMachine(t)
	run, out := m.command(t, "run", "--hook", m.hook, "--sm", "30", "--sm-limit", "60", "--isolation", "elastic", "--mem", "8Gi",
		"--name", "mine", "--", "cat")
	input, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(m.Status().Runs) == 1 })
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"set", "mine", "--sm-limit", "45"}, 0, ""},
		{[]string{"ps"}, 0, "30%-45%"},
		{[]string{"top", "--times", "1"}, 0, "of 30%-45%"},
		{[]string{"set", "mine", "--sm-limit", "70"}, 2, "--sm-limit: 70% is not between"},
		{[]string{"set", "other", "--sm-limit", "45"}, 1, "no run has the name"},
		{[]string{"set", "mine"}, 2, "one of --sm-limit and --quota is required"},
		{[]string{"set", "mine", "--sm-limit", "40", "--quota", "40"}, 2, "--sm-limit and --quota exclude each other"},
		{[]string{"set", "--sm-limit", "45"}, 2, "requires the name or ID of one run"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			cmd, out := m.command(t, test.args...)
			if code := codeOf(t, cmd.Run()); code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("code %d: %s", code, out)
			}
		})
	}
	input.Close()
	if err := run.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{"8Gi": 8192, "512Mi": 512, "1048577": 2, "1G": 954, "0.5Gi": 512} {
		t.Run(text, func(t *testing.T) {
			if got, err := parseMemory(text); err != nil || got != want {
				t.Errorf("got %d, %v; want %d", got, err, want)
			}
		})
	}
	for _, text := range []string{"", "0", "-1Gi", "8", "Gi", "8 Gi"} {
		t.Run("invalid "+text, func(t *testing.T) {
			if got, err := parseMemory(text); err == nil {
				t.Errorf("got %d", got)
			}
		})
	}
}

func TestBar(t *testing.T) {
	for _, test := range []struct {
		used, quota share.PerMille
		want        string
	}{
		{0, 500, strings.Repeat(" ", 20) + "!" + strings.Repeat(" ", 19)},
		{1000, 1000, strings.Repeat("=", 39) + "!"},
		{250, 500, strings.Repeat("=", 10) + strings.Repeat(" ", 10) + "!" + strings.Repeat(" ", 19)},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.used, test.quota), func(t *testing.T) {
			if got := usageBar(test.used, test.quota); got != test.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestHookOf finds the hook where a build in the checkout, a manual installation and the archive of a release have it.
func TestHookOf(t *testing.T) {
	for name, at := range map[string]string{"checkout": "usr/local/bin", "manual": "usr/local/lib", "release": "usr/lib/gshare"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			programs, want := filepath.Join(root, "usr/local/bin"), filepath.Join(root, at, hookfile.Name)
			if err := errors.Join(os.MkdirAll(programs, 0o755), os.MkdirAll(filepath.Dir(want), 0o755), os.WriteFile(want, nil, 0o755)); err != nil {
				t.Fatal(err)
			}
			if got, err := hookOf(programs); got != want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		})
	}
	if got, err := hookOf(t.TempDir()); err == nil {
		t.Errorf("%q where there is none", got)
	}
}
