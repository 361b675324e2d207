// Package scheduled_test holds the verdicts against the real scheduler on a real API server: each pod that waits is told the
// reason that the scheduler gave, and the change that is proposed makes the scheduler bind it.
package scheduled_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/controlplane"
	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/plugins"
)

// plane is the control plane of all tests.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	var options []schedulerapp.Option
	for name, factory := range plugins.All() {
		options = append(options, schedulerapp.WithPlugin(name, factory))
	}
	controlplane.Child(options...)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if plane, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "start API server:", err)
		return 1
	}
	defer func() { _ = plane.Stop() }()
	if _, err := plane.StartScheduler(ctx, "scheduler", manifests.SchedulerConfig, controlplane.SchedulerOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
