package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestEndOfAProcess(t *testing.T) {
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Alive() {
		t.Error("a running process has ended")
	}
	ended := make(chan struct{})
	go func() {
		p.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		t.Error("Wait returned before the end")
	case <-time.After(20 * time.Millisecond):
	}
	input.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if p.Alive() {
		t.Error("an ended process is alive")
	}
}

func TestCloseEndsWait(t *testing.T) {
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		p.Wait()
		close(ended)
	}()
	p.Close()
	<-ended
}

func TestOpenNobody(t *testing.T) {
	if _, err := Open(1 << 30); err == nil {
		t.Error("a PID that cannot be was opened")
	}
}

func TestKill(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	if err := p.Kill(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a second time: %v, want that there is no such process", err)
	}
}
