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

// configuration is the scheduler's: that of the manifests, and a profile that compares GPUs by their free SMs alone.
var configuration = string(manifests.SchedulerConfig) + `
- schedulerName: by-sms
  plugins:
    multiPoint:
      enabled: [{name: ComplementaryPacking, weight: 1500}]
    postFilter:
      enabled: [{name: ComplementaryPacking}]
    bind:
      enabled: [{name: ComplementaryPacking}]
  pluginConfig: [{name: ComplementaryPacking, args: {alphaPercent: 100}}]
`

// plane is the control plane of all tests.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(started *controlplane.ControlPlane) int {
		plane = started
		if _, err := plane.StartScheduler(context.Background(), "scheduler", []byte(configuration), controlplane.SchedulerOptions{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}
