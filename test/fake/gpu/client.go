// Package gpu lets tests run programs on simulated GPUs: it starts clients of the fake driver of hook/fake, which test/native builds, together
// with the simulation of node/gpu/simulation.
package gpu

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gshare-dev/gshare/node/gpu/simulation"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config configures a simulation of GPUs.
type Config = simulation.Config

// Span holds the launch, start and end times of a kernel.
type Span = simulation.Span

// Simulation is a simulation of GPUs that records the kernels of its clients.
type Simulation struct {
	*simulation.Simulation
	socket string
}

// New returns a simulation that serves fake drivers on the configured socket until Close.
func New(config Config) (*Simulation, error) {
	config.Record = true
	s, err := simulation.New(config)
	return &Simulation{s, config.Socket}, err
}

// Client describes a program to run on the simulated GPUs.
type Client struct {
	Folder    string         // holds the build of native.Driver and the program
	Arguments []string       // the program's name and its arguments
	SMs       share.PerMille // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 0 for all
	Preload   string         // library, or empty
	Env       []string       // additional environment variables
}

// Running is a program that runs on the simulated GPUs.
type Running struct {
	PID    int
	cmd    *exec.Cmd
	output bytes.Buffer
}

// Start starts a program that uses the simulated GPUs. From the program's first driver call on, the virtual clock waits for the program.
func (s *Simulation) Start(c Client) (*Running, error) {
	cmd := exec.Command(filepath.Join(c.Folder, c.Arguments[0]), c.Arguments[1:]...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+c.Folder, "FAKE_CUDA_SOCKET="+s.socket)
	if c.SMs > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%g", float64(c.SMs)/10))
	}
	if c.Preload != "" {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+c.Preload)
	}
	cmd.Env = append(cmd.Env, c.Env...)
	r := &Running{cmd: cmd}
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Arguments[0], err)
	}
	r.PID = cmd.Process.Pid
	return r, nil
}

// Wait waits until the program has exited, and returns its output.
func (r *Running) Wait() (string, error) {
	err := r.cmd.Wait()
	return r.output.String(), err
}

// Kill kills the program and waits until it has ended.
func (r *Running) Kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
