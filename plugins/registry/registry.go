// Package registry lists gshare's scheduler plugins: for each its packing model, and the ranking of nodes and GPUs that follows from its
// arguments. gshare-scheduler and gshare explain use the same list. The package does not import the scheduler framework, so that gshare does
// not have to link it.
package registry

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/api/config/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The names of the plugins in a scheduler configuration.
const (
	SlotPacking          = "SlotPacking"
	RectanglePacking     = "RectanglePacking"
	ComplementaryPacking = "ComplementaryPacking"
)

// plugins holds, by name, the constructor of each plugin from its arguments.
var plugins = map[string]func(runtime.Object) (Plugin, error){
	SlotPacking:          configureSlotPacking,
	RectanglePacking:     configureRectanglePacking,
	ComplementaryPacking: configureComplementaryPacking,
}

// Plugin is a packing plugin with the arguments of one scheduler profile.
type Plugin struct {
	Name  string
	Model packing.Model
	Args  v1alpha1.SharingArgs // with defaults filled in
	// Ranker returns the preference between nodes and GPUs, given what pods typically request.
	Ranker func(*packing.Demand) packing.Ranker
	// Affinity is set if the ranker depends on the workloads of pods.
	Affinity bool
}

// Names returns the names of gshare's scheduler plugins in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(plugins)) }

// Has reports whether gshare has a scheduler plugin of this name.
func Has(name string) bool { return plugins[name] != nil }

// Load returns the plugin of the given name with its arguments, which are raw JSON or YAML, or nil for the defaults. It returns an error for
// unknown fields and for values out of range; the scheduler then does not start.
func Load(name string, args runtime.Object) (Plugin, error) {
	load := plugins[name]
	if load == nil {
		return Plugin{}, fmt.Errorf("%s is none of the plugins %v", name, Names())
	}
	p, err := load(args)
	if err != nil {
		return Plugin{}, fmt.Errorf("%s: %w", name, err)
	}
	p.Name = name
	return p, nil
}

// configureSlotPacking returns the default plugin, which counts SMs and divides time: shares fit on a slice exactly when their slot table
// fits the window.
func configureSlotPacking(obj runtime.Object) (Plugin, error) {
	var args v1alpha1.SlotPackingArgs
	if err := v1alpha1.Load(obj, &args); err != nil {
		return Plugin{}, err
	}
	b := args.Balance
	terms := packing.Terms{Fragmentation: *b.Fragmentation, Stranding: *b.Stranding, CPUShortage: *b.CPUShortage, Scarcity: *b.Scarcity}
	return Plugin{Model: packing.Slots, Args: args.SharingArgs, Ranker: func(d *packing.Demand) packing.Ranker {
		return packing.Balance{Terms: terms, Demand: d}
	}}, nil
}

// configureRectanglePacking returns the plugin that packs FaST-GShare's quota x SM rectangles by the corrected Maximal Rectangles algorithm.
// As in the paper, it prefers the least wasted area alone.
func configureRectanglePacking(obj runtime.Object) (Plugin, error) {
	var args v1alpha1.RectanglePackingArgs
	if err := v1alpha1.Load(obj, &args); err != nil {
		return Plugin{}, err
	}
	return Plugin{Model: packing.Rectangles, Args: args.SharingArgs, Ranker: func(*packing.Demand) packing.Ranker {
		return packing.BestArea{}
	}}, nil
}

// configureComplementaryPacking returns the plugin with Dilu's resource-complementary choice of GPUs, workload affinity first. It chooses
// among the GPUs that the slot model admits.
func configureComplementaryPacking(obj runtime.Object) (Plugin, error) {
	var args v1alpha1.ComplementaryPackingArgs
	if err := v1alpha1.Load(obj, &args); err != nil {
		return Plugin{}, err
	}
	weights := packing.Complementary{Alpha: share.PerMille(*args.AlphaPercent) * 10, Beta: share.PerMille(*args.BetaPercent) * 10}
	return Plugin{Model: packing.Slots, Args: args.SharingArgs, Affinity: true, Ranker: func(*packing.Demand) packing.Ranker {
		return weights
	}}, nil
}
