package executable_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/executable"
)

// The main thread does not end with its goroutine. It is locked here, so that no goroutine of the test runs on it.
func init() { runtime.LockOSThread() }

// answers starts a program on a thread that then ends, and reports whether the program still responds.
func answers(t *testing.T, start func(*exec.Cmd) error) bool {
	t.Helper()
	command := exec.Command("cat")
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	thread, started := make(chan int, 1), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		thread <- syscall.Gettid()
		started <- start(command)
	}()
	id := <-thread
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	for end := time.Now().Add(10 * time.Second); syscall.Tgkill(syscall.Getpid(), id, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the thread does not end")
		}
	}
	fmt.Fprintln(input, "hello")
	line, _ := bufio.NewReader(output).ReadString('\n')
	return line == "hello\n"
}

func TestStart(t *testing.T) {
	if !answers(t, executable.Start) {
		t.Error("the program ended with the thread of its caller")
	}
	if answers(t, func(command *exec.Cmd) error {
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return command.Start()
	}) {
		t.Error("a program that the kernel should kill with its thread answers: the test above shows nothing")
	}
}
