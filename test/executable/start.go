package executable

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter returns a channel of functions to be called by one thread that never ends.
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

// Start starts a program that the kernel kills when the test process ends in any way. The kernel kills the program when the thread that started
// it ends, and Go ends a thread together with a goroutine that has locked it, such as one that mounts in its own mount namespace. Therefore all
// programs are started by one thread that never ends. Other attributes of the command are kept.
func Start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- command.Start() }
	return <-started
}
