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

	"github.com/gshare-dev/gshare/serving/rules/profile"
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
	eventuallyWithin(t, 5*patience, "it measures again", func() bool { p := read(); return len(p.Trials) == 1 && p.Attempt != nil })
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

// TestProfileTraining finds the SMs of a program that answers no requests, by the kernels that the agent counts: half of the SMs do as much as all.
func TestProfileTraining(t *testing.T) {
	if !*full {
		t.Skip("takes a minute")
	}
	b := newBench(t)
	b.start(t)
	state := filepath.Join(b.dir, "profile.json")
	cmd := exec.Command(b.program("gshare"), "profile", "--strategy", "bisection", "--socket", b.socket(), "--state", state, "--step", "25", "--steady", "3s",
		"--name", "train", "--", b.program("spin"), narrow, "sync=5")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.folder, "FAKE_CUDA_SOCKET="+filepath.Join(b.dir, "gpu"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	if want := "gshare run --sm 50 --sm-limit 50"; !strings.Contains(string(out), want) {
		t.Errorf("no %q: %s", want, out)
	}
	eventually(t, "its shares are back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
}

// TestProfileGrid: one process has all quotas of a number of SMs, and the agent enforces them.
func TestProfileGrid(t *testing.T) {
	if !*full {
		t.Skip("takes a minute")
	}
	b := newBench(t)
	b.start(t)
	state := filepath.Join(b.dir, "profile.json")
	starts := filepath.Join(b.dir, "starts")
	server := write(t, filepath.Join(b.dir, "server"), "#!/bin/bash\necho >>"+starts+"\nexec "+b.program("gshare-model")+" --name m --batch 1=2ms --input input:UINT8:1 --sm 40\n")
	if err := os.Chmod(server, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(b.program("gshare"), "profile", "--strategy", "grid", "--socket", b.socket(), "--state", state, "--slo", "1s", "--protocol", "OIP", "--name", "m",
		"--mem", "1Gi", "--max-trials", "6", "-o", "json", "--ready", "/v2/health/ready", "--", server)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.folder, "FAKE_CUDA_SOCKET="+filepath.Join(b.dir, "gpu"))
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	var got profileOf
	if err != nil || json.Unmarshal(out, &got) != nil {
		t.Fatalf("%v: %s%s", err, out, &log)
	}
	t.Logf("%s", &log)
	lines, err := os.ReadFile(starts)
	if err != nil || len(lines) != 2 {
		t.Errorf("%d processes for 5 quotas of 2 SM shares, %v", len(lines), err)
	}
	for _, trial := range got.Trials {
		p := trial.Point
		if alone := got.Trials[0].Point.Mean; p.Resource.SM == got.Trials[0].Point.Resource.SM && p.Resource.Quota == 200 && p.Mean < 3*alone {
			t.Errorf("a fifth of the time takes %v, all of it %v", p.Mean, alone)
		}
	}
}
