package executable

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter returns a channel of functions that one thread calls, which never ends.
var starter = sync.OnceValue(func() chan<- func() {
	functions := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range functions {
			f()
		}
	}()
	return functions
})

// Start starts a program that the kernel kills when the process of the test ends, however it ends. The kernel does so when the thread ends that
// has started the program, and a thread of Go ends with a goroutine that has locked it, such as one that mounts in a namespace of its own:
// hence the thread for all programs. Other attributes of the command are kept.
func Start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- command.Start() }
	return <-started
}
