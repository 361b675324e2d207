// Package mps manages NVIDIA's Multi-Process Service (MPS), which caps the SMs of each process on a shared slice. It runs one control
// daemon for each slice, so that a fault on one does not stop the others (FG-60, FG-63), also inside a MIG instance (FG-65). Package
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

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// controlProgram is the name of NVIDIA's MPS control daemon.
const controlProgram = "nvidia-cuda-mps-control"

// ServerProgram is the name of the MPS server, the process that a control daemon starts to run the work of its clients on the device.
const ServerProgram = "nvidia-cuda-mps-server"

// ErrNotInstalled means that the driver's MPS programs are not installed.
var ErrNotInstalled = errors.New(controlProgram + " is not installed")

// Daemons describes how the MPS control daemons of this machine are run.
type Daemons struct {
	Dir            string          // holds the pipe directory of each slice, and the logs
	Program        string          // path of the control daemon; empty: NVIDIA's, from PATH
	DetachedCgroup cgroup.Detached // where daemons are moved that must outlive the agent's container
	NoNamespaces   bool            // starts daemons without namespaces, even where the driver supports them
	Simulated      bool            // the devices are simulated: without a Program no daemon runs, and clients get the same environment

	commandTimeout time.Duration // 0: commandTimeout; tests of daemons that hang set less
}

// Enabled reports whether daemons are run at all.
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

// PipeDir returns the directory of the pipes of a slice's daemon, which containers mount. It does not contain the daemon's log.
func (d Daemons) PipeDir(slice string) string { return filepath.Join(d.Dir, slice) }

func (d Daemons) logDir(slice string) string { return filepath.Join(d.Dir, "log", slice) }

// Stop ends the daemons of all slices, which outlive the Manager that started them, and removes their cgroup. After an error, processes
// may still be running.
func (d Daemons) Stop(ctx context.Context) error {
	if !d.Enabled() {
		return nil
	}
	return errors.Join(d.stopAll(ctx), d.DetachedCgroup.Remove())
}

// stopAll quits each daemon by its own command, and kills those that do not obey it.
func (d Daemons) stopAll(ctx context.Context) error {
	entries, err := os.ReadDir(d.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if d.PipeDir(e.Name()) == d.logDir("") {
			continue
		}
		c := d.control(e.Name())
		if quitErr := c.quit(ctx); quitErr != nil {
			err = errors.Join(err, c.kill())
		}
	}
	return err
}

// ContextMemory is the approximate memory that the driver needs for one CUDA context. The driver's limits count it, a share does not.
// MPS limits each process separately, so each limit includes one context. A cgroup (dmem) limits all processes of a container together
// and includes one context too, as the number of processes is unknown.
const ContextMemory = 512 * share.MiB

// ClientEnvironment returns the variables that make a process a client of the daemon at a pipe directory. They cap it at the share's SM
// limit (Dilu D20) and at its memory, as a second line behind the hook. A daemon without namespaces cannot verify them.
func ClientEnvironment(pipeDir string, s share.Share) []string {
	return []string{
		pipeVariable + pipeDir,
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + strings.TrimSuffix(s.SMLimit.Percent(), "%"),
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", (s.Memory+ContextMemory)/share.MiB),
	}
}

// Features are optional capabilities of a driver's MPS. Namespaces (MPS v3, driver 615) are used where supported. Static partitions
// (driver 590) are not: they change only while the device has no clients, and shares come and go (docs/adr/0007).
type Features struct {
	StaticPartitions, Namespaces bool
}

// Features reads the supported features from the help text of the control program, which it runs.
func (d Daemons) Features(ctx context.Context) (Features, error) {
	text, err := d.help(ctx, "-h")
	if err != nil {
		return Features{}, err
	}
	namespaces, err := d.supportsNamespaces(ctx)
	return Features{StaticPartitions: strings.Contains(text, "static-partitioning"), Namespaces: namespaces}, err
}

// supportsNamespaces reports whether the control program has commands for namespaces. NVIDIA's guide for Dynamo detects them this way.
func (d Daemons) supportsNamespaces(ctx context.Context) (bool, error) {
	text, err := d.help(ctx, append(slices.Clone(version3), "-h")...)
	return strings.Contains(text, "namespace"), err
}

// help returns the help text of the control program, whatever its exit status. It returns an error if the program does not run to its end.
func (d Daemons) help(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program(), arguments...)
	cmd.WaitDelay = 100 * time.Millisecond
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
