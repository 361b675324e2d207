package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if common != nil {
		if err := common.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// schedulerConfig is the installed configuration, except that an unschedulable pod is retried after at most a second.
var schedulerConfig = []byte(string(manifests.SchedulerConfig) + "podInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 1\n")

// plane is the control plane that all tests share.
type plane struct {
	*controlplane.ControlPlane
	client    kubernetes.Interface
	board     *board
	endWatch  context.CancelFunc
	scheduler *controlplane.Process // the one that most tests share; nil while a test runs its own
}

// common is the shared control plane, started by the first test that needs it.
var (
	common     *plane
	startPlane = sync.OnceValue(func() (err error) {
		common, err = newPlane()
		return err
	})
)

func newPlane() (*plane, error) {
	// Not a test's context: the control plane outlives the test that starts it.
	ctx, cancel := context.WithCancel(context.Background())
	started, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		cancel()
		return nil, err
	}
	p := &plane{ControlPlane: started, endWatch: cancel}
	if p.client, err = bulk.NewClient(p.Config(access.Admin)); err == nil {
		p.board, err = newBoard(ctx, p.client)
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *plane) stop() error {
	p.endWatch()
	return p.Stop()
}

// sharedScheduler ensures that the scheduler shared by most tests is running.
func (l *lab) sharedScheduler() *controlplane.Process {
	l.t.Helper()
	if common.scheduler == nil {
		common.scheduler = l.startScheduler("shared", controlplane.SchedulerOptions{})
	}
	return common.scheduler
}

// ownScheduler runs a scheduler for this test only. No other scheduler runs, unless the test starts more.
func (l *lab) ownScheduler(name string, o controlplane.SchedulerOptions) *controlplane.Process {
	l.t.Helper()
	if common.scheduler != nil {
		common.scheduler.Kill()
		common.scheduler = nil
	}
	p := l.startScheduler(name, o)
	l.t.Cleanup(p.Kill)
	return p
}

func (l *lab) startScheduler(name string, o controlplane.SchedulerOptions) *controlplane.Process {
	l.t.Helper()
	began := time.Now()
	p, err := common.StartScheduler(l.ctx, name, schedulerConfig, o)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Logf("scheduler %s started in %v", name, time.Since(began).Round(time.Millisecond))
	l.t.Cleanup(func() { l.reportPanics(p) })
	return p
}

// reportPanics fails the test if the scheduler ended by itself, or its log shows a crash.
func (l *lab) reportPanics(p *controlplane.Process) {
	if err := p.Err(); err != nil {
		l.t.Error(err)
	}
	log, err := os.ReadFile(p.LogFile)
	if err != nil {
		l.t.Error(err)
	}
	for _, sign := range []string{"panic: ", "Observed a panic", "fatal error: "} {
		if at := strings.Index(string(log), sign); at >= 0 {
			l.t.Errorf("the log of %s has a crash: %.2000s", p.Name, log[at:])
		}
	}
}
