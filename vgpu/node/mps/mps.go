// Package mps runs NVIDIA's Multi-Process Service, which caps the SMs of each process on a shared device: one control
// daemon for each device, so that a fault on one does not stop the others (FG-60, FG-63).
package mps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// program is NVIDIA's control daemon, Server what it starts to work for its clients: a process of its own on the device.
const (
	program = "nvidia-cuda-mps-control"
	Server  = "nvidia-cuda-mps-server"
)

// ErrMissing says that the driver's MPS is not installed.
var ErrMissing = errors.New(program + " is not installed")

// Daemons keeps the daemons of the devices under Dir. Simulated ones are not started: their clients get the same
// environment, for a driver that is simulated too.
type Daemons struct {
	Dir       string
	Simulated bool
}

// Available says whether shared devices are possible; the error is ErrMissing if not.
func (d Daemons) Available() error {
	if d.Simulated {
		return nil
	}
	if _, err := exec.LookPath(program); err != nil {
		return ErrMissing
	}
	return nil
}

func (d Daemons) pipe(device string) string { return filepath.Join(d.Dir, device) }

// Start starts the daemon of a device unless it runs already.
func (d Daemons) Start(device string) error {
	if d.Simulated || d.command(device, "get_default_active_thread_percentage\n") == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(d.pipe(device), "log"), 0o755); err != nil {
		return err
	}
	return d.exec(device, "", "-d")
}

// Stop ends the daemon of a device, which must have no clients.
func (d Daemons) Stop(device string) error {
	if d.Simulated {
		return nil
	}
	return d.command(device, "quit\n")
}

func (d Daemons) command(device, text string) error { return d.exec(device, text) }

func (d Daemons) exec(device, input string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+device,
		"CUDA_MPS_PIPE_DIRECTORY="+d.pipe(device), "CUDA_MPS_LOG_DIRECTORY="+filepath.Join(d.pipe(device), "log"))
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("MPS of device %s: %w: %.200s", device, err, bytes.TrimSpace(out))
	}
	return nil
}

// contextMemory is about what the driver takes for itself in a process: MPS counts it, a share does not.
const contextMemory = 512 * share.MiB

// Environment is what makes a process a client that runs on at most its limit of the SMs (Dilu D20) and, as a second line behind the
// hook, within its memory.
func (d Daemons) Environment(device string, s share.Share) []string {
	return []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(device),
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + strings.TrimSuffix(s.SMLimit.Percent(), "%"),
		fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", (s.Memory+contextMemory)/share.MiB),
	}
}
