package machine_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/executable"
)

func boot(t *testing.T) *machine.Machine {
	t.Helper()
	if err := machine.CheckSupported(); errors.Is(err, machine.ErrNotSupported) {
		t.Skip(err)
	}
	folder := t.TempDir()
	program := filepath.Join(folder, "init")
	compile := exec.Command("gcc", "-D_GNU_SOURCE", "-static", "-o", program, "init/init.c")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, err := machine.Boot(machine.Config{Name: "m", Init: program, Shared: folder, Logs: folder})
	if errors.Is(err, machine.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Halt)
	return m
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// run runs a shell script on the machine.
func run(t *testing.T, m *machine.Machine, script string) string {
	t.Helper()
	out, err := m.Run(testContext(t), "/bin/sh", "-ec", script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestApart(t *testing.T) {
	m := boot(t)
	cases := map[string]struct{ script, want string }{
		"host name":  {"hostname", "m"},
		"processes":  {"cd /proc; set -- [0-9]*; echo $#", "2"}, // init and the shell
		"network":    {"cat /proc/net/dev | grep -c :", "1"},    // lo
		"run":        {"ls /run", "shared"},
		"kernel":     {"cat /proc/sys/kernel/panic", "10"},
		"our folder": {"test -e " + m.DataDir() + "/etc && echo yes", "yes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := run(t, m, c.script); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	written := []string{"/etc/gshare-machine", "/var/lib/gshare-machine", "/run/gshare-machine"}
	for _, path := range written {
		run(t, m, "echo mark >"+path)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is seen outside: %v", path, err)
		}
		if content, err := os.ReadFile(m.HostPath(path)); err != nil || string(content) != "mark\n" {
			t.Errorf("%s is read as %q, %v", path, content, err)
		}
	}
}

func TestReboot(t *testing.T) {
	m := boot(t)
	p, err := m.Start(testContext(t), machine.Program{Name: "sleep", Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, m, "echo mark >/etc/mark; echo mark >/run/mark; sleep 1000 >/dev/null 2>&1 &")
	if got := run(t, m, "ps ax | grep -c '[s]leep 1000'"); got != "2" {
		t.Fatalf("%s processes sleep", got)
	}
	pid := p.PID()
	if err := m.Reboot(); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("a process that a reboot ended reports %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it is still there: %v", err)
	}
	if got := run(t, m, "cat /etc/mark; ls /run; ps ax | grep '[s]leep' || true"); got != "mark\nshared" {
		t.Errorf("after a reboot: %s", got)
	}
	if err := p.Restart(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestProcess(t *testing.T) {
	m := boot(t)
	ctx := testContext(t)
	ready := func(context.Context) error { _, err := os.Stat(m.HostPath("/run/ready")); return err }
	script := "echo started $LIFE; touch /run/ready; exec sleep 1000"
	p, err := m.Start(ctx, machine.Program{Name: "p", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"LIFE=1"}, Ready: ready})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(ctx); err == nil {
		t.Error("a running process was started again")
	}
	p.Kill()
	run(t, m, "rm /run/ready")
	if err := p.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if got := string(executable.LogTail(p.LogFile)); got != "started 1\nstarted 1" {
		t.Errorf("the log is %q", got)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if <-p.Done(); p.Err() == nil || !strings.Contains(p.Err().Error(), "killed") {
		t.Errorf("an unexpected end gives %v", p.Err())
	}
	never := func(context.Context) error { return errors.New("not yet") }
	_, err = m.Start(ctx, machine.Program{Name: "short", Path: "/bin/sh", Args: []string{"-c", "echo why; exit 3"}, Ready: never})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "why") {
		t.Errorf("a program that ends before it is ready gives %v", err)
	}
}

func TestConnectVeth(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	left, right := boot(t), boot(t)
	ctx := testContext(t)
	for range 2 { // the second pair replaces the first
		if err := left.ConnectVeth(ctx, "port", right, "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	run(t, left, "ip address add 198.18.1.1/24 dev port; ip link set port up")
	run(t, right, "ip address add 198.18.1.2/24 dev eth0; ip link set eth0 up; ip link set lo up")
	for {
		_, err := left.Dial(ctx, "tcp", "198.18.1.2:7")
		if errors.Is(err, syscall.ECONNREFUSED) { // refused by the other machine, where nobody listens
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
