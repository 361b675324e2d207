// Package plugins lists gshare's scheduler plugins.
package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/complementarypacking"
	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/rectanglepacking"
	"github.com/gshare-dev/gshare/plugins/slotpacking"
)

// Factory creates a scheduler plugin for one profile of the scheduler configuration.
type Factory = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)

// All returns the factories of gshare's scheduler plugins by plugin name. They share one ledger of assumed placements, as all profiles
// place pods on the same GPUs.
func All() map[string]Factory {
	shared := ledger.New()
	return map[string]Factory{
		slotpacking.Name:          slotpacking.New(shared),
		rectanglepacking.Name:     rectanglepacking.New(shared),
		complementarypacking.Name: complementarypacking.New(shared),
	}
}
