// Package enforce measures what pods get on one GPU: the real token server, the real hook in real processes, the fake driver
// and the device simulation, on the virtual clock. What an experiment says is true of the time-sharing, not of a device: the
// simulation has no memory bandwidth, no caches and no preemption.
package enforce

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/fakegpu"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Pod is a container of one process with a load: arguments of hook/fake/programs/spin.c.
type Pod struct {
	Share share.Share
	Load  []string
	Env   []string
}

// Experiment is a set of pods on one GPU, from zero to Length. Its processes stop when it ends.
type Experiment struct {
	Folder   string // of the built programs (Build)
	Unhooked bool   // the processes run without the hook
	Tokens   token.Config
	RunAhead time.Duration // of the token server; 0 for its default
	Pods     []Pod
	Length   time.Duration
}

// Build compiles the fake driver, the programs and the hook of the repository at root into a folder.
func Build(root, folder string) error { return fakegpu.Build(root, folder) }

// UUID is that of the only device.
const UUID = "GPU-00000000-0000-0000-0000-000000000000"

// Result is what one pod got.
type Result struct {
	Kernels  Spans
	Reported time.Duration // device time that its hook measured in the last nine tenths of a second
}

// Run returns what each pod got.
func (e Experiment) Run() (results []Result, err error) {
	dir, err := os.MkdirTemp("", "enforce") // short: names of sockets end at 108 bytes
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	gpu, err := fakegpu.New(fakegpu.Config{Socket: filepath.Join(dir, "gpu"), Virtual: true})
	if err != nil {
		return nil, err
	}
	defer gpu.Close()
	server, err := e.serve(gpu, dir)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	pods, err := e.start(gpu, dir)
	defer func() {
		for _, p := range pods {
			p.Kill()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := gpu.Await(len(pods)); err != nil {
		return nil, fmt.Errorf("start the pods: %w", err)
	}
	if err := gpu.Run(e.Length); err != nil {
		return nil, err
	}
	for i, status := range server.Snapshot() {
		results = append(results, Result{gpu.Spans(pods[i].PID), status.VGPUs[0].Busy})
	}
	return results, nil
}

func (e Experiment) serve(gpu *fakegpu.Simulation, dir string) (*tokenserver.Server, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	server := tokenserver.New(tokenserver.Config{Clock: gpu.Clock(), Log: quiet, Window: e.Tokens.Window, RunAhead: e.RunAhead})
	tokens, err := token.New(e.Tokens)
	if err != nil {
		return nil, err
	}
	slice := server.NewSlice(tokens)
	for i, p := range e.Pods {
		_, err := server.AddContainer(tokenserver.Spec{
			ID: fmt.Sprintf("%03d", i), Dir: podDir(dir, i), // Snapshot sorts by ID
			VGPUs: []tokenserver.VGPU{{Share: p.Share, Slice: slice, UUID: UUID}},
		})
		if err != nil {
			server.Close()
			return nil, fmt.Errorf("serve pod %d: %w", i, err)
		}
	}
	return server, nil
}

func (e Experiment) start(gpu *fakegpu.Simulation, dir string) (pods []*fakegpu.Running, err error) {
	for i, p := range e.Pods {
		client := fakegpu.Client{
			Folder: e.Folder, Arguments: append([]string{"spin"}, p.Load...), SMs: p.Share.SMLimit,
			Env: append([]string{"GSHARE_DIR=" + podDir(dir, i)}, p.Env...),
		}
		if !e.Unhooked {
			client.Preload = filepath.Join(e.Folder, "libgshare-virtual.so")
		}
		r, err := gpu.Start(client)
		if err != nil {
			return pods, err
		}
		pods = append(pods, r)
	}
	return pods, nil
}

func podDir(dir string, pod int) string { return filepath.Join(dir, fmt.Sprint(pod)) }
