package mps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const defaultCommandTimeout = 2 * time.Second

func (d Daemons) timeout() time.Duration { return cmp.Or(d.CommandTimeout, defaultCommandTimeout) }

// errTimeout means that a daemon has not answered a command in time.
var errTimeout = errors.New("timed out")

const pipeVariable = "CUDA_MPS_PIPE_DIRECTORY="

// control is a client of the MPS control daemon of one slice, to which it sends commands. It has roughly one method for each command of the
// daemon.
type control struct {
	Daemons
	slice      string
	isVersion3 bool // the daemon speaks MPS v3, which has namespaces; otherwise v2
}

// control returns a client of the MPS daemon of a slice, for the MPS version of the running daemon, if any.
func (d Daemons) control(slice string) control {
	c := control{Daemons: d, slice: slice}
	c.isVersion3 = c.runsVersion3()
	return c
}

// start starts the daemon. If the agent is root, one server serves the clients of all users. Otherwise, and with drivers before 555, which
// lack the option, clients of a second user wait in cuInit until the last process of the first user has ended.
func (c control) start(ctx context.Context) error {
	for _, dir := range []string{c.PipeDir(c.slice), c.logDir(c.slice), c.ClientDir(c.slice)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	arguments := []string{"-d"}
	if c.isVersion3 {
		arguments = append(arguments, version3Flags...)
	}
	if err := c.recordVersion(); err != nil {
		return err
	}
	run := func() error { return c.runDaemon(ctx, arguments) }
	if c.usesSharedMemory() {
		if err := c.mountSharedMemory(); err != nil {
			return err
		}
		if err := withSharedMemory(c.SharedMemory(c.slice), run); err != nil {
			return err
		}
	} else if err := run(); err != nil {
		return err
	}
	return c.moveToDetachedCgroup()
}

// runDaemon runs the control program with the arguments of a daemon, and with the flag for several users if the program supports it.
func (c control) runDaemon(ctx context.Context, arguments []string) (err error) {
	if os.Geteuid() != 0 {
		_, err = c.run(ctx, "", arguments...)
	} else if _, err = c.run(ctx, "", append(slices.Clone(arguments), c.multiUserFlag())...); err != nil && strings.Contains(err.Error(), noDaemonText) {
		_, err = c.run(ctx, "", arguments...)
	}
	return err
}

// multiUserFlag returns the flag of a daemon whose server serves the processes of all users.
func (c control) multiUserFlag() string {
	if c.isVersion3 {
		return "-m"
	}
	return "-multiuser-server"
}

// noDaemonText is what the control program prints when it is run to send commands and no daemon runs. Programs of drivers before 555 act as
// if they were run for that when they do not know one of their options.
const noDaemonText = "Cannot find MPS control daemon process"

// moveToDetachedCgroup moves the daemon out of the agent's cgroup before the daemon starts servers: when the agent's container ends, the
// container runtime kills all processes in its cgroup.
func (c control) moveToDetachedCgroup() (all error) {
	pids, _ := c.findProcesses()
	for _, pid := range pids {
		all = errors.Join(all, c.DetachedCgroup.Enter(pid))
	}
	return all
}

// run runs NVIDIA's control program with the environment of the slice and returns its output.
func (c control) run(ctx context.Context, input string, arguments ...string) (string, error) {
	return c.runIn(ctx, c.PipeDir(c.slice), input, arguments...)
}

// runIn runs NVIDIA's control program with a pipe directory and returns its output. A daemon that it starts gets the guard library, which
// keeps clients from sending commands, except with MPS v3, whose protocol is not known.
func (c control) runIn(ctx context.Context, pipeDir, input string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program(), arguments...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+c.slice, pipeVariable+pipeDir, "CUDA_MPS_LOG_DIRECTORY="+c.logDir(c.slice))
	if filepath.IsAbs(c.program()) { // a daemon looks for its server in PATH
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(c.program())+":"+os.Getenv("PATH"))
	}
	if c.Guard != "" && !c.isVersion3 {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+c.Guard)
	}
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = 2 * time.Second // processes that it started may hold its output open
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errTimeout
	}
	if err != nil {
		return "", fmt.Errorf("MPS daemon of slice %s: %w: %.200s", c.slice, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// busyDelay is the time between two attempts to send a command to a daemon that is serving another command session.
const busyDelay = 5 * time.Millisecond

// errBusy means that the daemon closed the session before it answered, as it serves one session at a time.
var errBusy = errors.New("the daemon serves another session of commands")

// sessions has a mutex for each pipe directory, so that this process opens only one command session at a time there.
var sessions sync.Map

// retry repeats a command until the daemon is free to execute it.
func (c control) retry(ctx context.Context, command func(ctx context.Context) (string, error)) (answer string, err error) {
	session, _ := sessions.LoadOrStore(c.PipeDir(c.slice), new(sync.Mutex))
	session.(*sync.Mutex).Lock()
	defer session.(*sync.Mutex).Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	for {
		answer, err = command(ctx)
		if !errors.Is(err, errBusy) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(busyDelay):
		}
	}
}

// commandV2 sends one command to a daemon of MPS v2 and returns its output.
func (c control) commandV2(ctx context.Context, text string) (string, error) {
	return c.retry(ctx, func(ctx context.Context) (string, error) { return c.tryCommandV2(ctx, c.PipeDir(c.slice), text) })
}

// tryCommandV2 sends one command to a daemon of MPS v2 through the pipe in a directory. A busy daemon can look like a daemon that has
// nothing to report, with exit code 0. So a second command follows, whose answer is known to be a number.
func (c control) tryCommandV2(ctx context.Context, pipeDir, text string) (string, error) {
	output, err := c.runIn(ctx, pipeDir, text+"\nget_default_active_thread_percentage\n")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() && !strings.Contains(err.Error(), noDaemonText) {
		return "", fmt.Errorf("%w: %w", errBusy, err)
	}
	if err != nil {
		return "", err
	}
	answer := strings.TrimSuffix(output, "\n")
	end := strings.LastIndex(answer, "\n") + 1
	if _, err := strconv.ParseFloat(answer[end:], 64); err != nil {
		return "", fmt.Errorf("MPS daemon of slice %s: %w", c.slice, errBusy)
	}
	return output[:end], nil
}

// hasPipe reports whether the pipe of a daemon exists.
func (c control) hasPipe() bool {
	pipe, err := os.Lstat(filepath.Join(c.PipeDir(c.slice), pipeName))
	return err == nil && pipe.Mode().Type() == os.ModeSocket
}

// server is an MPS server process with its clients.
type server struct {
	name    string // only with MPS v3
	pid     int    // 0: not started yet
	fault   bool   // accepts no new clients until those that failed in a fault have ended
	clients []int  // PIDs
}

// listServers queries the daemon for its MPS servers and their clients.
func (c control) listServers(ctx context.Context) (found []server, err error) {
	if c.isVersion3 {
		return c.listServersV3(ctx)
	}
	text, err := c.commandV2(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	for _, pid := range parsePIDs(text) {
		status, err := c.commandV2(ctx, fmt.Sprint("get_server_status ", pid))
		if err != nil {
			return nil, err
		}
		clients, err := c.commandV2(ctx, fmt.Sprint("get_client_list ", pid)) // none if the server has ended meanwhile
		if err != nil {
			return nil, err
		}
		found = append(found, server{pid: pid, fault: isFaulted(status), clients: parsePIDs(clients)})
	}
	return found, nil
}

// terminateClient terminates the CUDA work of a client; the client's process continues with errors. It must be called before any signal that
// ends the process: a client killed while it works can leave the server, and so all other clients, in an undefined state.
func (c control) terminateClient(ctx context.Context, s server, pid int) error {
	if c.isVersion3 {
		_, err := c.commandV3(ctx, "client", "terminate", strconv.Itoa(pid))
		return err
	}
	_, err := c.commandV2(ctx, fmt.Sprint("terminate_client ", s.pid, " ", pid))
	return err
}

// quit tells the daemon to terminate its servers and itself, and removes the pipes that it leaves, since clients that connect to these would
// fail. The exit code of the command is the daemon's, which is 1 if one of its servers has ever failed.
func (c control) quit(ctx context.Context) error {
	var err error
	if c.isVersion3 {
		_, err = c.commandV3(ctx, "-q")
	} else {
		_, err = c.run(ctx, "quit -t 1\n") // without a time limit, it waits for servers that never end
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) && !c.isVersion3 && !strings.Contains(err.Error(), noDaemonText) {
		err = nil
	}
	if err != nil {
		return err
	}
	return c.killAll()
}

// parsePIDs parses the output of a command that prints one PID per line. Any other text, such as "Server 12 not found", contains no PIDs,
// although some such texts are followed by a line with a number.
func parsePIDs(answer string) (pids []int) {
	for line := range strings.Lines(answer) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid <= 0 {
			return nil
		}
		pids = append(pids, pid)
	}
	return pids
}

// isFaulted reports whether the status of an MPS server (INITIALIZING, ACTIVE or FAULT) is a fault.
func isFaulted(status string) bool { return strings.Contains(strings.ToUpper(status), "FAULT") }
