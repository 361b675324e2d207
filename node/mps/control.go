package mps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/share"
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

// A tenant can choose any name, arguments and environment for a process. The user and the pod of a process, however, are known from the
// kernel.

// findProcesses returns the PIDs of the slice's MPS daemons and servers, no matter who started them. Servers survive a daemon that was
// killed.
func (c control) findProcesses() (daemons, servers []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		switch process.Program(pid) {
		case filepath.Base(c.program()):
			if hasAgentUser(pid) && c.isProcessOfSlice(pid) && hasArguments(pid, "-d") { // without -d it is a client that sends commands
				daemons = append(daemons, pid)
			}
		case ServerProgram:
			if c.isProcessOfSlice(pid) {
				servers = append(servers, pid)
			}
		}
	}
	return daemons, servers
}

// isProcessOfSlice reports whether a process was started for the slice, according to its environment, and not by a tenant.
func (c control) isProcessOfSlice(pid int) bool {
	if isInOtherPod(pid) {
		return false // checked first: reading the memory of a tenant's process can take as long as the tenant likes
	}
	environment, err := process.ReadFile(pid, "environ")
	return err == nil && bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+pipeVariable+c.PipeDir(c.slice)+"\x00"))
}

// hasArguments reports whether the command line of a process contains the given arguments in a row.
func hasArguments(pid int, arguments ...string) bool {
	line, err := process.ReadFile(pid, "cmdline")
	return err == nil && strings.Contains("\x00"+string(line), "\x00"+strings.Join(arguments, "\x00")+"\x00")
}

// hasAgentUser reports whether a process runs as the agent's user, as MPS daemons do. The user of MPS servers depends on the driver.
func hasAgentUser(pid int) bool {
	uid, err := process.User(pid)
	return err == nil && uid == os.Getuid()
}

// isInOtherPod reports whether a process is in another pod than the agent, or in an unknown pod. A daemon is in the agent's pod until it is
// moved to the detached cgroup, and then in none.
func isInOtherPod(pid int) bool {
	c, err := containerOf(pid)
	if errors.Is(err, cgroup.ErrNoContainer) {
		return false
	}
	own, _ := containerOf(os.Getpid())
	return err != nil || c.PodUID != own.PodUID
}

func containerOf(pid int) (cgroup.Container, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return cgroup.Container{}, err
	}
	return m.Container()
}

// killTimeout is how long a killed process may take to end. One that hangs in the driver may never end.
const killTimeout = time.Second

// killAll kills the slice's daemon and servers, waits until they have ended, and removes their pipes.
func (c control) killAll() (all error) {
	daemons, servers := c.findProcesses()
	for _, pid := range append(daemons, servers...) {
		p, err := process.Open(pid)
		if err != nil {
			continue // it has ended
		}
		if c.isProcessOfSlice(pid) { // the PID has not been reused
			all = errors.Join(all, p.Kill(), waitForExit(p))
		}
		p.Close()
	}
	return errors.Join(all, c.removePipes())
}

// waitForExit blocks until a process has ended. It returns an error after killTimeout.
func waitForExit(p process.Process) error {
	for end := time.Now().Add(killTimeout); p.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d has not ended %v after SIGKILL", p.PID, killTimeout)
		}
	}
	return nil
}

// removePipes removes the pipes of a daemon that has ended: clients that find them would hang or fail, and so would the next daemon.
// Directories that containers may have mounted stay, as a mount would not follow a new directory of the same name. Since tenants can write
// to them, links in them are never followed out of the directory.
func (c control) removePipes() error {
	return errors.Join(removePipesIn(c.PipeDir(c.slice)), removePipesIn(c.ClientDir(c.slice)))
}

func removePipesIn(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer root.Close()
	return removeContents(root, ".")
}

// removeContents removes what a directory contains, except for directories that containers may have mounted, and their parents.
func removeContents(root *os.Root, dir string) (all error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	all = ignoreNotExist(err)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case !e.IsDir() || name != serverName && !isNamespaceDir(name):
			all = errors.Join(all, root.RemoveAll(name))
		case isNamespaceDir(name):
			_ = removeContents(root, name) // may fail: the tenant can create files meanwhile, which must not keep the next daemon from starting
		default:
			all = errors.Join(all, removeContents(root, name))
		}
	}
	return all
}

// isNamespaceDir reports whether a path relative to a slice's pipe directory is the directory of an MPS v3 namespace.
func isNamespaceDir(name string) bool { return path.Dir(name) == serverName }

// The commands of MPS v3 follow NVIDIA's pages "MPS v3 Interface" and "MPS v3 Namespaces" of release 615. These pages confirm: -d -p 3, -m,
// -q, the verbs and options below, their output as comma-separated values, the directory of a namespace, and names of lowercase letters,
// digits and underscores. Not confirmed, for lack of such a driver: fractions of a percent (the page says 1 to 100, but its tables have two
// decimals), the status of a server after a fault (assumed to be as in v2), reuse of a directory of the same name, and a directory mounted
// at another path in a container.

// version3Flags are the command-line flags that select MPS v3. NVIDIA's guide for Dynamo passes them with each command; the program uses
// the version of the running daemon in any case.
var version3Flags = []string{"-p", "3"}

// serverName is the name of the only MPS server of a slice's daemon. Work of several servers would be time-sliced on the device.
const serverName = "shares"

const csvFormat = "--format=csv,noheader"

// commandV3 sends one command to a daemon of MPS v3 and returns its output, or an error if the daemon refuses it.
func (c control) commandV3(ctx context.Context, words ...string) (string, error) {
	return c.retry(ctx, func(ctx context.Context) (string, error) {
		output, err := c.run(ctx, "", append(slices.Clone(version3Flags), words...)...)
		if err != nil && (strings.HasSuffix(err.Error(), "exit status 1: ") || strings.HasSuffix(err.Error(), busyText)) && c.hasPipe() {
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		return output, err
	})
}

// busyText is what the control program prints if the daemon closes its session before all commands are sent.
const busyText = "Cannot send command to MPS control daemon process"

// parseRecords parses comma-separated values with one record per line.
func parseRecords(answer string) (all [][]string) {
	for line := range strings.Lines(answer) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, strings.Split(line, ","))
		}
	}
	return all
}

// listServersV3 queries a daemon of MPS v3 for its servers (name, uid, pid, status) and their clients (pid, ...).
func (c control) listServersV3(ctx context.Context) (found []server, err error) {
	list, err := c.commandV3(ctx, "server", "list", csvFormat)
	if err != nil {
		return nil, err
	}
	for _, r := range parseRecords(list) {
		if len(r) < 4 {
			continue
		}
		clients, err := c.commandV3(ctx, "client", "list", "--server="+r[0], csvFormat)
		if err != nil {
			return nil, err
		}
		s := server{name: r[0], fault: isFaulted(r[3])}
		s.pid, _ = strconv.Atoi(r[2])
		for _, client := range parseRecords(clients) {
			s.clients = append(s.clients, parsePIDs(client[0])...)
		}
		found = append(found, s)
	}
	return found, nil
}

// listNamespaces returns the names of the MPS server's namespaces.
func (c control) listNamespaces(ctx context.Context) (names []string, err error) {
	list, err := c.commandV3(ctx, "namespace", "list", "--server="+serverName, csvFormat)
	for _, r := range parseRecords(list) {
		names = append(names, r[0])
	}
	return names, err
}

// setLimits sets all limits of a share's MPS namespace. A limit that is not set is unlimited; those of the server are not inherited.
func (c control) setLimits(ctx context.Context, m Member) error {
	priority := "0"
	if m.LowPriority {
		priority = "1"
	}
	_, err := c.commandV3(ctx, "namespace", "set", m.Name, "--server="+serverName,
		"--active-thread-percentage="+strings.TrimSuffix(m.SMs.Percent(), "%"),
		"--pinned-memory-limit="+strconv.FormatInt(int64((m.Memory+ContextMemory(m.SMs))/share.MiB), 10)+"M", "--client-priority="+priority)
	return err
}

// terminateNamespace terminates the CUDA work of all clients of an MPS namespace.
func (c control) terminateNamespace(ctx context.Context, name string) (all error) {
	list, err := c.commandV3(ctx, "client", "list", "--server="+serverName, csvFormat)
	if err != nil {
		return err
	}
	for _, r := range parseRecords(list) {
		for _, pid := range parsePIDs(r[0]) {
			if slices.Contains(r, name) {
				all = errors.Join(all, c.terminateClient(ctx, server{}, pid))
			}
		}
	}
	return all
}

// runsVersion3 reports whether the running daemon, which an earlier agent may have started, uses MPS v3.
func (c control) runsVersion3() bool {
	pids, _ := c.findProcesses()
	return slices.ContainsFunc(pids, hasVersion3Arguments)
}

func hasVersion3Arguments(pid int) bool { return hasArguments(pid, version3Flags...) }

// recordVersion stores the version of the daemon that runs or is about to be started, so that its successor can be given the same version.
func (c control) recordVersion() error {
	if !c.isVersion3 {
		return ignoreNotExist(os.Remove(c.versionFile()))
	}
	return errors.Join(os.MkdirAll(c.logDir(c.slice), 0o755), os.WriteFile(c.versionFile(), nil, 0o644))
}

// recordedVersion3 reports whether the last daemon of the slice used MPS v3.
func (c control) recordedVersion3() bool {
	_, err := os.Stat(c.versionFile())
	return err == nil
}

// versionFile returns the path of a marker file that exists only if the last daemon of the slice used MPS v3.
func (c control) versionFile() string { return filepath.Join(c.logDir(c.slice), "version3") }

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Before version 3, an MPS server and its clients exchange files in /dev/shm, and CUDA fails with error 805 if they see different ones. Each
// container has its own /dev/shm by default. So the agent mounts a tmpfs for each slice, which the daemon and the containers of the slice
// have at /dev/shm.

// SharedMemoryPath is where programs have their POSIX shared memory.
const SharedMemoryPath = "/dev/shm"

// sharedMemoryDir contains the mount points of all slices.
const sharedMemoryDir = "shm"

// sharedMemoryLimits are the mount options that limit how much the processes of a slice can leave in their shared memory. Kubernetes counts
// its pages as memory of the pod that wrote them, while that pod exists.
const sharedMemoryLimits = "size=1g,nr_inodes=64k,mode=0755"

func (d Daemons) sharedMemoryMount(slice string) string {
	return filepath.Join(d.Dir, sharedMemoryDir, slice)
}

// SharedMemory returns the directory that the MPS daemon and the containers of a slice have at /dev/shm. It is a directory inside the
// slice's tmpfs, and not the mount point, so that no container can be created with it while the tmpfs is not mounted.
func (d Daemons) SharedMemory(slice string) string {
	return filepath.Join(d.sharedMemoryMount(slice), "files")
}

// mountSharedMemory mounts the shared memory of the slice, unless an earlier daemon or agent has done so.
func (c control) mountSharedMemory() error {
	point, files := c.sharedMemoryMount(c.slice), c.SharedMemory(c.slice)
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	mounted, err := isMountPoint(point)
	if err != nil {
		return err
	}
	if !mounted {
		if err := unix.Mount("gshare-mps", point, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, sharedMemoryLimits); err != nil {
			return fmt.Errorf("mount the shared memory of slice %s: %w", c.slice, err)
		}
	}
	if err := os.Mkdir(files, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(files, os.ModeSticky|0o777)
}

// unmountSharedMemory unmounts the shared memory of a slice, if it is mounted. Its files remain available to processes that still have it
// mounted.
func (d Daemons) unmountSharedMemory(slice string) error {
	point := d.sharedMemoryMount(slice)
	mounted, err := isMountPoint(point)
	if err != nil {
		return ignoreNotExist(err)
	}
	if mounted {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount the shared memory of slice %s: %w", slice, err)
		}
	}
	return os.Remove(point)
}

// slicesWithSharedMemory returns the slices whose shared memory is or was being mounted.
func (d Daemons) slicesWithSharedMemory() (slices []string) {
	entries, _ := os.ReadDir(filepath.Join(d.Dir, sharedMemoryDir))
	for _, e := range entries {
		slices = append(slices, e.Name())
	}
	return slices
}

// unmountAll unmounts the shared memory of all slices.
func (d Daemons) unmountAll() (all error) {
	for _, slice := range d.slicesWithSharedMemory() {
		all = errors.Join(all, d.unmountSharedMemory(slice))
	}
	return all
}

// isMountPoint reports whether a file system of its own is mounted at a directory.
func isMountPoint(dir string) (bool, error) {
	var own, parent syscall.Stat_t
	if err := errors.Join(syscall.Lstat(dir, &own), syscall.Lstat(filepath.Dir(dir), &parent)); err != nil {
		return false, err
	}
	return own.Dev != parent.Dev, nil
}

// withSharedMemory calls start on a thread with its own mount namespace, in which dir is mounted at /dev/shm. Processes that start creates
// stay in that namespace. Mounts that are later made or removed outside of it are made or removed inside it, too.
func withSharedMemory(dir string, start func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may run in this namespace, so the thread ends with this one
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			done <- fmt.Errorf("create a mount namespace for the MPS daemon: %w", err)
			return
		}
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""), unix.Mount(dir, SharedMemoryPath, "", unix.MS_BIND, "")); err != nil {
			done <- fmt.Errorf("mount %s at %s for the MPS daemon: %w", dir, SharedMemoryPath, err)
			return
		}
		done <- start()
	}()
	return <-done
}

// usesSharedMemory reports whether the daemon of the slice is started with the slice's shared memory.
func (c control) usesSharedMemory() bool { return c.OwnSharedMemory && !c.isVersion3 }

// sharedMemoryMissing returns why containers cannot share memory with the daemon with a PID, or an empty string if they can.
func (c control) sharedMemoryMissing(pid int) string {
	if !c.usesSharedMemory() {
		return ""
	}
	own, ownErr := os.Stat(c.SharedMemory(c.slice))
	daemons, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, SharedMemoryPath))
	if err := errors.Join(ownErr, err); err != nil {
		return "the shared memory of the slice is missing: " + err.Error()
	}
	if !os.SameFile(own, daemons) {
		return "the daemon has another /dev/shm than the slice's containers: an earlier version of the agent has started it, and it ends with the slice's last pod"
	}
	return ""
}

// releaseSharedMemory unmounts the shared memory of a slice whose daemon has ended, unless a share has been opened or granted there
// meanwhile.
func (m *Manager) releaseSharedMemory(slice string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.OwnSharedMemory || len(m.daemons[slice].pending)+len(m.members[slice]) > 0 {
		return
	}
	if err := m.unmountSharedMemory(slice); err != nil {
		m.Log.Error("failed to unmount shared memory of MPS", "slice", slice, "error", err)
	}
}
