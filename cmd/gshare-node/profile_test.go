package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// profileOf is what the test reads of a profile.
type profileOf struct {
	Complete bool
	Trials   []struct {
		Point  profile.Point
		Failed string
	}
	Attempt     *struct{ Count int }
	Points      []profile.Point
	Recommended struct{ SM, Quota, MaxBatch int }
}

// TestProfile profiles gshare-model with real processes, is killed after its trial, while it measures that share again, and goes on
// from there.
func TestProfile(t *testing.T) {
	b := newBench(t)
	b.start(t)
	file, state := write(t, filepath.Join(b.dir, "functions.yaml"), fmt.Sprintf(`apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 2s}
  protocol: OIP
  template:
    spec:
      containers:
      - command: [%s, --name, resnet50, --weights, 40Mi, --batch, 1=50ms, --batch, 2=80ms, --input, 'input:UINT8:1']
        readinessProbe: {httpGet: {path: /v2/health/ready}}
`, b.program("gshare-model"))), filepath.Join(b.dir, "profile.json")
	command := func() *exec.Cmd {
		cmd := exec.Command(b.program("gshare"), "profile", file, "--socket", b.socket(), "--state", state, "--step", "100", "--max-batch", "1", "-o", "json")
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.folder, "FAKE_CUDA_SOCKET="+filepath.Join(b.dir, "gpu"))
		return cmd
	}
	read := func() (p profileOf) {
		text, err := os.ReadFile(state)
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return p
	}
	killed := command()
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it measures again", func() bool { p := read(); return len(p.Trials) == 1 && p.Attempt != nil })
	if err := killed.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // killed
	first := read().Trials[0].Point

	resumed := command()
	var log strings.Builder
	resumed.Stderr = &log
	out, err := resumed.Output()
	var got profileOf
	if err != nil || json.Unmarshal(out, &got) != nil {
		t.Fatalf("%v: %s%s", err, out, &log)
	}
	if !got.Complete || len(got.Trials) != 1 || got.Trials[0].Point.Mean != first.Mean || got.Trials[0].Point.Resource != first.Resource || len(got.Points) != 1 {
		t.Errorf("%+v; before it was killed: %+v", got, first)
	}
	if c := got.Recommended; c.SM != 100 || c.Quota != 100 || c.MaxBatch != 1 {
		t.Errorf("recommended %+v", c)
	}
	if p := got.Trials[0].Point; p.Resource.SM != 1000 || p.Mean.Milliseconds() < 50 || p.Memory < 40<<20 {
		t.Errorf("%+v", p)
	}
	eventually(t, "its shares are back", func() bool { return len(b.mustStatus(t).Runs) == 0 })

	again := command()
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "remove it to measure again") {
		t.Errorf("%v: %s", err, out)
	}
}
