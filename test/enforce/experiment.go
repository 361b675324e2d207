// Package enforce measures what pods get on one GPU: the real token server, the real hook in real processes, the fake driver
// and the device simulation, on the virtual clock. What an experiment says is true of the time-sharing, not of a device: the
// simulation has no memory bandwidth, no caches and no preemption.
package enforce

import (
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Pod is a container of one process with a load: arguments of hook/fake/programs/spin.c. It may have more processes.
type Pod struct {
	Share    share.Share
	Priority share.Priority // of an elastic share
	Load     []string
	More     [][]string // the loads of the others
	Env      []string
}

// Experiment is a set of pods on one GPU, from zero to Length. Its processes stop when it ends.
type Experiment struct {
	Folder   string // of the built programs (Build)
	Unhooked bool   // the processes run without the hook
	Tokens   token.Config
	Elastic  bool          // class elastic: block tokens, and no use for Tokens
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
