package mps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// commandTimeout is how long a daemon may take to answer a command.
const commandTimeout = 2 * time.Second

func (d Daemons) timeout() time.Duration { return cmp.Or(d.commandTimeout, commandTimeout) }

// errTimeout means that a daemon has not answered a command in time.
var errTimeout = errors.New("timed out")

const pipeVariable = "CUDA_MPS_PIPE_DIRECTORY="

// control is a client of the MPS control daemon of one slice, to which it sends commands. It has about one method for each command of the
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
// lack the option, clients of a second user wait in cuInit until the last process of the first user has ended. It reports in singleUser
// whether that is so although the agent is root.
func (c control) start(ctx context.Context) (singleUser bool, err error) {
	for _, dir := range []string{c.PipeDir(c.slice), c.logDir(c.slice)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, err
		}
	}
	arguments, multiUser := []string{"-d"}, "-multiuser-server"
	if c.isVersion3 {
		arguments, multiUser = append(arguments, version3Flags...), "-m"
	}
	if err := c.recordVersion(); err != nil {
		return false, err
	}
	if os.Geteuid() != 0 {
		_, err = c.run(ctx, "", arguments...)
	} else if _, err = c.run(ctx, "", append(slices.Clone(arguments), multiUser)...); err != nil && strings.Contains(err.Error(), noDaemonText) {
		_, err = c.run(ctx, "", arguments...)
		singleUser = true
	}
	if err != nil {
		return false, err
	}
	return singleUser, c.moveToDetachedCgroup()
}

// noDaemonText is what the control program prints when it should send commands and no daemon runs. Programs of drivers before 555 take
// themselves for that if they do not know one of their options.
const noDaemonText = "Cannot find MPS control daemon process"

// moveToDetachedCgroup moves the daemon out of the agent's cgroup before it starts servers: a container runtime kills all processes in the
// cgroup of a container that ends.
func (c control) moveToDetachedCgroup() (all error) {
	pids, _ := c.findProcesses()
	for _, pid := range pids {
		all = errors.Join(all, c.DetachedCgroup.Enter(pid))
	}
	return all
}

// run runs NVIDIA's control program with the environment of the slice and returns its output.
func (c control) run(ctx context.Context, input string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program(), arguments...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+c.slice,
		pipeVariable+c.PipeDir(c.slice), "CUDA_MPS_LOG_DIRECTORY="+c.logDir(c.slice))
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = 100 * time.Millisecond // its children may hold its output open
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errTimeout
	}
	if err != nil {
		return "", fmt.Errorf("MPS daemon of slice %s: %w: %.200s", c.slice, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// commandV2 sends one command to a daemon of MPS v2 and returns its output.
func (c control) commandV2(ctx context.Context, text string) (string, error) {
	return c.run(ctx, text+"\n")
}

// server is an MPS server process with its clients.
type server struct {
	name    string // of MPS v3 only
	pid     int    // 0: not started yet
	fault   bool   // accepts no clients until those that a fault has failed have ended
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
		clients, err := c.commandV2(ctx, fmt.Sprint("get_client_list ", pid)) // none, if the server has ended meanwhile
		if err != nil {
			return nil, err
		}
		found = append(found, server{pid: pid, fault: isFaulted(status), clients: parsePIDs(clients)})
	}
	return found, nil
}

// terminateClient terminates the CUDA work of a client; its process continues with errors. This must precede any signal that ends the
// process: a client killed while it works can leave the server, and so all other clients, in an undefined state.
func (c control) terminateClient(ctx context.Context, s server, pid int) error {
	if c.isVersion3 {
		_, err := c.commandV3(ctx, "client", "terminate", strconv.Itoa(pid))
		return err
	}
	_, err := c.commandV2(ctx, fmt.Sprint("terminate_client ", s.pid, " ", pid))
	return err
}

// quit tells the daemon to terminate itself and its servers.
func (c control) quit(ctx context.Context) error {
	if c.isVersion3 {
		_, err := c.commandV3(ctx, "-q")
		return err
	}
	_, err := c.commandV2(ctx, "quit")
	return err
}

// parsePIDs parses the output of a command with one PID per line. It skips all other lines.
func parsePIDs(answer string) (pids []int) {
	for line := range strings.Lines(answer) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isFaulted reports whether the status of an MPS server (INITIALIZING, ACTIVE or FAULT) is a fault.
func isFaulted(status string) bool { return strings.Contains(strings.ToUpper(status), "FAULT") }
