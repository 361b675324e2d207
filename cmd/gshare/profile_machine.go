//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	processes "github.com/gshare-dev/gshare/serving/fleet/machine"
	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// describe returns a file with the function of a program.
func (c *commandFlags) describe(name string, command []string) ([]byte, error) {
	if c.slo <= 0 && !c.training {
		return nil, errors.New("--slo is required for a program, such as --slo 69ms; one that answers no requests needs --strategy bisection instead")
	}
	if name == "" {
		name = filepath.Base(command[0])
	}
	container := map[string]any{"command": command}
	if c.ready != "" {
		container["readinessProbe"] = map[string]any{"httpGet": map[string]any{"path": c.ready}}
	}
	spec := map[string]any{
		"slo": map[string]any{"latency": cmp.Or(c.slo, time.Hour).String()}, "protocol": c.protocol, // a training has none
		"template": map[string]any{"spec": map[string]any{"containers": []any{container}}},
	}
	if c.memory != "" {
		spec["resources"] = map[string]any{"share": map[string]any{"sm": 100, "memory": c.memory}}
	}
	return json.Marshal(map[string]any{"apiVersion": api.APIVersion, "kind": api.Kind, "metadata": map[string]any{"name": name}, "spec": spec})
}

// profiledMachine is this machine, on whose GPU servers are profiled.
type profiledMachine struct {
	client  *agent.Client
	starter []string
	device  control.Device
}

// newProfiledMachine asks the agent for its GPU. It refuses GPUs of different kinds, because a program cannot choose on which of them it runs.
func newProfiledMachine(ctx context.Context, starter []string, socket string) (*profiledMachine, error) {
	m := &profiledMachine{client: agent.New(socket), starter: starter}
	status, err := m.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for i, d := range status.Devices {
		if i > 0 && (d.Model != m.device.Model || d.SMs != m.device.SMs || d.Memory != m.device.Memory || d.Profile != m.device.Profile) {
			return nil, fmt.Errorf("this machine has different GPUs, %s and %s: start an agent with one kind of them only", m.device.Model, d.Model)
		}
		m.device = d
	}
	if m.device.UUID == "" {
		return nil, errors.New("the agent has no GPU")
	}
	return m, nil
}

// fingerprint identifies the program of a function and this machine.
func (m *profiledMachine) fingerprint(f *api.GPUFunction) (profiler.Fingerprint, error) {
	c := f.Container()
	program, err := exec.LookPath(c.Command[0])
	if err != nil {
		return profiler.Fingerprint{}, err
	}
	file, err := os.Open(program)
	if err != nil {
		return profiler.Fingerprint{}, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return profiler.Fingerprint{}, err
	}
	return profiler.Fingerprint{
		Program: digest(struct {
			Program       string
			Command, Args []string
			Env           any
		}{hex.EncodeToString(hash.Sum(nil)), c.Command, c.Args, c.Env}),
		Device: fmt.Sprintf("%s, %d SMs, %d MiB", m.device.Model+m.device.Profile, m.device.SMs, m.device.Memory/share.MiB),
		Driver: m.driver(), Gshare: release.Version(),
	}, nil
}

// digest returns the SHA-256 of the JSON form of a value.
func digest(value any) string {
	text, _ := json.Marshal(value) // never fails for structs of strings
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// driver returns the version of the GPU driver.
func (m *profiledMachine) driver() string {
	if m.device.Simulated {
		return "simulated"
	}
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return "unknown"
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return string(bytes.Join(bytes.Fields(line), []byte(" ")))
}

// target returns a profiler.Target that starts the function's program on this machine. A training job answers no requests, so its target sends
// none.
func (m *profiledMachine) target(f *api.GPUFunction, r profiler.Request, training bool, console *cli.Console) *processTarget {
	t := &processTarget{profiledMachine: m, function: f, request: r, training: training, console: console, running: map[string]*profiledProcess{}}
	t.processes = processes.New(m.starter, func(_, line string) { t.remember(line) })
	t.processes.Unprobed = training
	go t.receive()
	return t
}

// processTarget starts a function's program on shares of this machine.
type processTarget struct {
	*profiledMachine
	function  *api.GPUFunction
	request   profiler.Request
	training  bool
	console   *cli.Console
	processes *processes.Machine

	mu      sync.Mutex // guards what follows
	started int
	running map[string]*profiledProcess
	last    string // line of a program
}

func (t *processTarget) remember(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = line
}

// profiledProcess is a profiler.Server.
type profiledProcess struct {
	*profiler.Client
	target *processTarget
	name   string // of the run and of the instance
	ready  chan string
	ended  chan struct{}
	reason string // why it has ended; set before ended is closed
}

// receive passes the events of started processes on to them, until this process ends.
func (t *processTarget) receive() {
	for e := range t.processes.Events() {
		t.mu.Lock()
		p := t.running[e.Instance]
		t.mu.Unlock()
		switch e.Kind {
		case fleet.Ready:
			p.ready <- e.Address
		case fleet.Failed, fleet.Gone:
			p.reason = e.Message
			close(p.ended)
		}
	}
}

// waitNotice is how long a start may take before a message says what it waits for.
const waitNotice = 5 * time.Second

// Start implements profiler.Target.
func (t *processTarget) Start(ctx context.Context, sm, quota share.PerMille) (profiler.Server, error) {
	t.mu.Lock()
	t.started++
	p := &profiledProcess{target: t, name: fmt.Sprintf("profile-%s-%d", t.function.Name, t.started), ready: make(chan string, 1), ended: make(chan struct{})}
	t.running[p.name] = p
	t.mu.Unlock()
	t.processes.Create(fleet.Instance{
		Name: p.name, ID: scaling.ID(t.started), Function: t.function, Residency: scaling.Hot,
		Share: share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: t.function.Share().Memory},
	})
	notice := time.AfterFunc(waitNotice, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.console.Step("waiting for the server on sm %s, quota %s: %s", sm.Percent(), quota.Percent(), t.last)
	})
	defer notice.Stop()
	select {
	case <-ctx.Done():
		p.Close()
		return nil, ctx.Err()
	case <-p.ended:
		return nil, &profiler.FailedError{Reason: p.reason}
	case address := <-p.ready:
		if t.training {
			return p, nil
		}
		var err error
		if p.Client, err = profiler.NewClient(ctx, t.request, address); err != nil {
			p.Close()
			return nil, err
		}
		return p, nil
	}
}

// Infer implements profiler.Server.
func (p *profiledProcess) Infer(ctx context.Context, rows int) load.Answer {
	return p.Client.Infer(ctx, rows)
}

// Ended implements profiler.Server.
func (p *profiledProcess) Ended() <-chan struct{} { return p.ended }

// Failure implements profiler.Server.
func (p *profiledProcess) Failure() string { return p.reason }

// Close implements profiler.Server.
func (p *profiledProcess) Close() {
	p.target.processes.Delete(p.name)
	<-p.ended
	if p.Client != nil {
		p.Client.Close()
	}
}

// Narrow implements profiler.Server. It returns false if the agent cannot change the quota of a running program, or if the program has a whole
// GPU.
func (p *profiledProcess) Narrow(ctx context.Context, quota share.PerMille) bool {
	return p.target.client.SetLimit(ctx, control.LimitRequest{Run: p.name, Quota: new(int64(quota / 10))}) == nil
}

// Usage implements profiler.Server.
func (p *profiledProcess) Usage(ctx context.Context) (profiler.Usage, error) {
	status, err := p.target.client.Status(ctx)
	if err != nil {
		return profiler.Usage{}, err
	}
	at := slices.IndexFunc(status.Runs, func(r control.Run) bool { return r.Name == p.name })
	if at < 0 {
		return profiler.Usage{}, fmt.Errorf("the agent has lost the run %s", p.name)
	}
	own := status.Runs[at].VGPUs[0]
	for i, r := range status.Runs {
		if i != at && slices.ContainsFunc(r.VGPUs, func(v control.VGPU) bool { return v.Device == own.Device }) {
			return profiler.Usage{}, fmt.Errorf("%s (%s) is on the same GPU, which a profile needs for itself: end it, or profile without memory in the share", r.Name, r.ID)
		}
	}
	used := profiler.Usage{Memory: own.UsedMemory, Utilisation: min(own.UsedTime, share.Whole), Counted: true}
	for _, process := range own.Processes {
		used.Launches += process.Launches
	}
	return used, nil
}
