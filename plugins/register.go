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

// Factory creates a plugin for one profile of the scheduler.
type Factory = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)

// All returns the factory of each plugin by the plugin's name. The factories of one call share a ledger, as profiles share the same GPUs.
func All() map[string]Factory {
	shared := ledger.New()
	return map[string]Factory{
		slotpacking.Name:          slotpacking.New(shared),
		rectanglepacking.Name:     rectanglepacking.New(shared),
		complementarypacking.Name: complementarypacking.New(shared),
	}
}
