// Package enforce measures what pods get on one GPU: the real token server, the real hook in real processes, the fake driver and
// the device simulation, on the virtual clock. Its results describe time sharing, not a real device: the simulation has no memory
// bandwidth, no caches and no preemption.
package enforce

import (
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Pod describes a container of an experiment, with one or more processes. Their loads are arguments of the test program
// hook/fake/programs/spin.c.
type Pod struct {
	Share    share.Share
	Priority share.Priority // of an elastic share
	Load     []string
	More     [][]string // the loads of the others
	Env      []string
}

// Experiment describes pods that share one simulated GPU, and how long they run.
type Experiment struct {
	Folder   string // of the built programs (Build)
	Unhooked bool   // the processes run without the hook
	Tokens   token.Config
	Elastic  bool          // class elastic: block tokens, and no use for Tokens
	RunAhead time.Duration // of the token server; 0 for its default
	Pods     []Pod
	Length   time.Duration
}

// Build compiles the fake CUDA driver, the test programs and the hook into a directory. root is the root of the repository.
func Build(root, folder string) error { return fakegpu.Build(root, folder) }

// UUID is the UUID of the experiment's GPU.
const UUID = "GPU-00000000-0000-0000-0000-000000000000"

// Result holds the kernels that a pod has run, and the GPU time that its hook has reported.
type Result struct {
	Kernels  Spans
	Reported time.Duration // device time that its hook measured in the last nine tenths of a second
}

// Run runs the experiment on the virtual clock and returns the results of its pods, in their order.
func (e Experiment) Run() (results []Result, err error) {
	m, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := m.GPU.Run(e.Length); err != nil {
		return nil, err
	}
	return m.Results(), nil
}
