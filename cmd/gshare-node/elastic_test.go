package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// vgpuOf is the part of the run of that name, as the agent knows it.
func (b *bench) vgpuOf(t *testing.T, name string) control.VGPU {
	t.Helper()
	for _, r := range b.mustStatus(t).Runs {
		if r.Name == name {
			return r.VGPUs[0]
		}
	}
	return control.VGPU{}
}

// TestElastic runs an inference beside a training on an elastic device, in real time: real programs, hook, agent and command on
// the fake driver. The agent is killed under them, and the limit that was moved outlives it.
func TestElastic(t *testing.T) {
	b := newBench(t, runAhead)
	a := b.start(t)
	pods := []pod{{name: "serve"}, {name: "train"}}
	pods[0].Running = b.run(t, "serve", 30, 100, "--sm-limit", "60", "--class", "slo", "--",
		b.program("spin"), narrow, "sync=5", "pause=20000000")
	pods[1].Running = b.run(t, "train", 50, 100, "--sm-limit", "90", "--", b.program("spin"), narrow)
	b.normal(t, pods)
	if class := b.mustStatus(t).Devices[0].Class; class != "elastic" {
		t.Errorf("the device is %s", class)
	}
	if out, err := b.gshare(t, "set", "train", "--sm-limit", "70").Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := b.gshare(t, "set", "train", "--sm-limit", "95").Wait(); codeOf(t, err) != 2 || !strings.Contains(out, "--sm-limit: 95% is not between") {
		t.Errorf("%v: %s", err, out)
	}
	eventually(t, "the limit counts", func() bool { v := b.vgpuOf(t, "train"); return v.SMLimit == 700 && v.SMNow <= 700 })
	a.end(syscall.SIGKILL)
	b.allRun(t, pods)
	b.start(t)
	b.normal(t, pods)
	if v := b.vgpuOf(t, "train"); v.SMLimit != 700 || v.SM != 500 || v.SMNow > share.Whole {
		t.Errorf("the next agent has %+v", v)
	}
	for _, p := range pods {
		p.Kill()
	}
	eventually(t, "all shares are back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
}
