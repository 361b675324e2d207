// Package scheduled_test holds the verdicts against the real scheduler on a real API server: each pod that waits is told the
// reason that the scheduler gave, and the change that is proposed makes the scheduler bind it.
package scheduled_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/controlplane"
)

// plane is the control plane of all tests.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.During(func(started *controlplane.ControlPlane) int {
		plane = started
		if _, err := plane.StartScheduler(context.Background(), "scheduler", manifests.SchedulerConfig, controlplane.SchedulerOptions{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}
