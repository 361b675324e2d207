// Package plugins creates gshare's scheduler plugins, which the registry lists.
package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/plugins/sharing"
)

// Factory creates a scheduler plugin for one profile of the scheduler configuration.
type Factory = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)

// All returns the factories of gshare's scheduler plugins by plugin name. They share one ledger of assumed placements, because all
// profiles place pods on the same GPUs.
func All() map[string]Factory {
	shared, all := ledger.New(), map[string]Factory{}
	for _, name := range registry.Names() {
		all[name] = New(name, shared)
	}
	return all
}

// New returns the factory of the named plugin. The ledger holds the assumed placements of all profiles of the process.
func New(name string, l *ledger.Ledger) Factory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := registry.Load(name, args)
		if err != nil {
			return nil, err
		}
		return sharing.New(ctx, sharing.Config{Plugin: plugin, Ledger: l}, handle)
	}
}
