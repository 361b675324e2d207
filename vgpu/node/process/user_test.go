package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestUser(t *testing.T) {
	if got, err := User(os.Getpid()); err != nil || got != os.Getuid() {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := User(1 << 30); err == nil {
		t.Error("nobody has a user")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can play another user")
	}
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	if got, err := User(other.Process.Pid); err != nil || got != 4711 {
		t.Errorf("%d, %v", got, err)
	}
}

// TestParseUser: a program may have any name, as far as the kernel writes it.
func TestParseUser(t *testing.T) {
	if got, err := parseUser("Name:\tUid: 0 0 0 0\nUmask:\t0022\nUid:\t4711\t0\t0\t0\n"); err != nil || got != 4711 {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"", "Name:\ta\n", "Uid:\tx\t0\t0\t0\n"} {
		if got, err := parseUser(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
