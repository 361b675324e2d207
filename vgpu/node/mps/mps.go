// Package mps runs NVIDIA's Multi-Process Service, which caps the SMs of each process on a shared slice: one control daemon for
// each slice, so that a fault on one does not stop the others (FG-60, FG-63), also inside a MIG instance (FG-65). The rule of
// package supervisor says what is done about each.
package mps

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// program is NVIDIA's control daemon, Server what it starts to work for its clients: a process of its own on the device.
const (
	program = "nvidia-cuda-mps-control"
	Server  = "nvidia-cuda-mps-server"
)

// ErrMissing says that the driver's MPS is not installed.
var ErrMissing = errors.New(program + " is not installed")

// Daemons is where the daemons are, and which program they run.
type Daemons struct {
	Dir       string       // with a directory for each slice
	Program   string       // empty: NVIDIA's, as it is found in the path
	Apart     cgroup.Apart // where daemons live that must outlive the container of the agent
	Plain     bool         // no daemon is started with namespaces, whatever the driver offers
	Simulated bool         // the devices are: without a Program no daemon runs, and clients get the same environment
}

// Runs says that there are daemons.
func (d Daemons) Runs() bool { return !d.Simulated || d.Program != "" }

func (d Daemons) program() string { return cmp.Or(d.Program, program) }

// Available says whether slices can be shared; the error is ErrMissing if not.
func (d Daemons) Available() error {
	if !d.Runs() {
		return nil
	}
	if _, err := exec.LookPath(d.program()); err != nil {
		return ErrMissing
	}
	return nil
}

// Pipe is the directory of a slice's daemon. Its log lies elsewhere: containers get pipes only.
func (d Daemons) Pipe(slice string) string { return filepath.Join(d.Dir, slice) }

func (d Daemons) log(slice string) string { return filepath.Join(d.Dir, "log", slice) }

// ContextMemory is about what the driver takes for itself in a process: its limits count it, a share does not. MPS limits each
// process for itself; by cgroup (dmem) the limit is of all together, and has room for one context, as nobody knows how many come.
const ContextMemory = 512 * share.MiB

// Environment is what makes a process that comes by a directory of pipes a client that runs on at most its limit of the SMs (Dilu D20)
// and, as a second line behind the hook, within its memory. A daemon without namespaces takes its word for it.
func Environment(pipe string, s share.Share) []string {
	return []string{
		pipeVariable + pipe,
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + strings.TrimSuffix(s.SMLimit.Percent(), "%"),
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", (s.Memory+ContextMemory)/share.MiB),
	}
}
