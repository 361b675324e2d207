// Package mps manages NVIDIA's Multi-Process Service (MPS), which caps the SMs of each process on a shared slice. It runs one control daemon
// for each slice, also inside MIG instances, so that a fault on one slice does not stop the others. Package
// supervisor decides when a daemon is started, stopped or replaced.
package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// controlProgram is the name of NVIDIA's MPS control daemon.
const controlProgram = "nvidia-cuda-mps-control"

// ServerProgram is the name of the MPS server, the process that a control daemon starts to run the work of its clients on the device.
const ServerProgram = "nvidia-cuda-mps-server"

// ErrNotInstalled means that the driver's MPS programs are not installed.
var ErrNotInstalled = errors.New(controlProgram + " is not installed")

// Daemons configures how the MPS control daemons of this machine are started.
type Daemons struct {
	Dir            string          // holds the pipe directory of each slice, and the logs
	Program        string          // path of the control daemon; empty: NVIDIA's, from PATH
	DetachedCgroup cgroup.Detached // where daemons are moved, as they must outlive the agent's container
	Guard          string          // path of the library that keeps clients from sending commands to a daemon; empty: none
	// OwnSharedMemory gives each slice a /dev/shm of its own, shared by its daemon and its containers. This needs root. Without it, they use
	// the machine's.
	OwnSharedMemory bool
	NoNamespaces    bool // starts daemons without namespaces, even where the driver supports them
	Simulated       bool // the devices are simulated: without a Program no daemon runs, and clients get the same environment as with one

	// CommandTimeout is how long a daemon may take to answer a command before it counts as hung; 0: two seconds.
	CommandTimeout time.Duration
}

// Enabled reports whether MPS daemons are started at all. They are not if devices are simulated and no Program is set.
func (d Daemons) Enabled() bool { return !d.Simulated || d.Program != "" }

func (d Daemons) program() string { return cmp.Or(d.Program, controlProgram) }

// Available returns nil if slices can be shared through MPS, and ErrNotInstalled otherwise.
func (d Daemons) Available() error {
	if !d.Enabled() {
		return nil
	}
	if _, err := exec.LookPath(d.program()); err != nil {
		return ErrNotInstalled
	}
	return nil
}

// PipeDir returns the directory with the pipes of a slice's daemon. It does not contain the daemon's log. Containers do not mount it, since
// it has a pipe that accepts commands from root; they mount only the directories of namespaces in it.
func (d Daemons) PipeDir(slice string) string { return filepath.Join(d.Dir, slice) }

// ClientDir returns the directory that clients of a slice's daemon use as their pipe directory, if the daemon has no namespaces. It contains
// a link to the only pipe that they need, and containers mount it.
func (d Daemons) ClientDir(slice string) string { return filepath.Join(d.Dir, clientsDir, slice) }

// clientsDir contains the directories for clients of all slices.
const clientsDir = "clients"

func (d Daemons) logDir(slice string) string { return filepath.Join(d.Dir, "log", slice) }

// Stop stops the daemons of all slices, which keep running after their Manager is closed, and removes their cgroup and their shared memory.
// If it returns an error, processes may still be running.
func (d Daemons) Stop(ctx context.Context) error {
	if !d.Enabled() {
		return nil
	}
	return errors.Join(d.stopDaemons(ctx), d.unmountAll(), d.DetachedCgroup.Remove())
}

// stopDaemons sends each daemon the command to quit, and kills those that do not obey.
func (d Daemons) stopDaemons(ctx context.Context) error {
	entries, err := os.ReadDir(d.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if d.PipeDir(e.Name()) == d.logDir("") || e.Name() == clientsDir || e.Name() == sharedMemoryDir {
			continue
		}
		c := d.control(e.Name())
		if quitErr := c.quit(ctx); quitErr != nil {
			err = errors.Join(err, c.killAll())
		}
	}
	return err
}

// ClientEnvironment returns the environment variables that make a process a client of the daemon with the given pipe directory. They limit
// its SMs to the share's SM limit (Dilu D20), and its memory as a second line of defence behind the hook. A daemon without namespaces
// cannot verify them.
func ClientEnvironment(pipeDir string, s share.Share) []string {
	return []string{
		pipeVariable + pipeDir,
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + strings.TrimSuffix(s.SMLimit.Percent(), "%"),
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", (s.Memory+ContextMemory(s.SMLimit))/share.MiB),
	}
}

// Features are optional capabilities of a driver's MPS. Namespaces (MPS v3, driver 615) are used where supported. Static partitions (driver
// 590) are not, since they can change only while the device has no clients (docs/adr/0007).
type Features struct {
	StaticPartitions, Namespaces bool
}

// Features returns the features that the help text of the control program mentions.
func (d Daemons) Features(ctx context.Context) (Features, error) {
	text, err := d.helpText(ctx, "-h")
	if err != nil {
		return Features{}, err
	}
	namespaces, err := d.supportsNamespaces(ctx)
	return Features{StaticPartitions: strings.Contains(text, "static-partitioning"), Namespaces: namespaces}, err
}

// supportsNamespaces reports whether the control program has commands for namespaces. It looks for them in the help text, as NVIDIA's guide
// for Dynamo does.
func (d Daemons) supportsNamespaces(ctx context.Context) (bool, error) {
	text, err := d.helpText(ctx, append(slices.Clone(version3Flags), "-h")...)
	return strings.Contains(text, "namespace"), err
}

// helpText returns the help text of the control program, whatever its exit status. It returns an error if the program does not exit by
// itself.
func (d Daemons) helpText(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program(), arguments...)
	cmd.WaitDelay = 2 * time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("read the help of %s: %w", d.program(), err)
	}
	return string(out), nil
}
