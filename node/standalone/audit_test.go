package standalone

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// listed plays the driver: the processes that it lists.
type listed struct {
	gpu.Source
	processes []gpu.Process
}

func (l listed) Processes() ([]gpu.Process, error) { return l.processes, nil }

// TestMemoryAudit: the status of a run tells that its process has more memory by the driver's count than by the hook's. What a context takes
// is no difference.
func TestMemoryAudit(t *testing.T) {
	n := newNode(t, tempDir(t), func(o *Options) {
		o.Source = listed{processes: []gpu.Process{
			{PID: os.Getpid(), Slice: "GPU-0", Memory: 3 * gib}, {PID: os.Getpid(), Slice: "GPU-1", Memory: 617 * share.MiB}, {PID: 1, Slice: "GPU-1", Memory: 9 * gib},
		}}
	})
	for range 2 { // the second on the other device
		grant := mustAdmit(t, n, newProgram(t), ask(100, 100, 1024))
		session, err := tokenclient.Dial(grant.Dir, 0) // of this process
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
	}
	missing := func(device string, part string) bool {
		for _, r := range n.Status().Runs {
			if r.VGPUs[0].Device == device {
				return slices.ContainsFunc(r.Enforcement.Missing, func(m string) bool { return strings.Contains(m, part) })
			}
		}
		t.Fatal("no run on " + device)
		return false
	}
	eventually(t, "the difference is reported", func() bool {
		return missing("GPU-0", "the driver counts 3072 MiB of its processes, the hook 0 MiB, and the share has 1024 MiB")
	})
	if missing("GPU-1", "the driver counts") {
		t.Error("contexts, and the memory of a process that is not of the run, are reported")
	}
}
