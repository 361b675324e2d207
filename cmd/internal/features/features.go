// Package features declares the feature gates of gshare: what is not ready to be relied on, and how a user turns it on.
package features

import (
	"fmt"
	"slices"

	"k8s.io/component-base/featuregate"
)

// The feature gates.
const (
	GPURebalance   featuregate.Feature = "GPURebalance"
	MIGOnDemand    featuregate.Feature = "MIGOnDemand"
	ModelStore     featuregate.Feature = "ModelStore"
	Parking        featuregate.Feature = "Parking"
	Pipelines      featuregate.Feature = "Pipelines"
	PlanApply      featuregate.Feature = "PlanApply"
	ResourceClaims featuregate.Feature = "ResourceClaims"
	Swap           featuregate.Feature = "Swap"
)

// gate declares a feature gate.
type gate struct {
	name     featuregate.Feature
	spec     featuregate.FeatureSpec
	since    string   // the first version of gshare that has the gate in its stage
	programs []string // those that refuse the feature while the gate is off
	page     string   // the page of docs that describes the feature
	text     string   // what the feature is, in a sentence
}

// alpha is the stage of what may change or go, and is off unless a user turns it on.
var alpha = featuregate.FeatureSpec{Default: false, PreRelease: featuregate.Alpha}

// gates are all feature gates, in alphabetical order. Each program knows all of them, so that one list can be passed to all programs.
var gates = []gate{
	{GPURebalance, alpha, "0.1", []string{"gshare-descheduler"}, "rebalance.md",
		"The descheduler's plugin `GPURebalance` moves pods, so that whole GPUs become free or a waiting pod fits."},
	{MIGOnDemand, alpha, "0.1", []string{"gshare-node"}, "tutorials.md",
		"The agent creates and removes MIG instances as pods request them, on the GPUs that `kubernetes.onDemand` lists."},
	{ModelStore, alpha, "0.1", []string{"gshare-node"}, "store.md",
		"The agent runs model stores (`kubernetes.modelStore`), which keep one copy of the weights that the pods of a namespace declare."},
	{Parking, alpha, "0.1", []string{"gshare-controller"}, "serving.md",
		"Replicas that are not needed keep their process and release their GPU memory, as `scaling.keepWarm` of a GPUFunction says."},
	{Pipelines, alpha, "0.1", []string{"gshare-controller"}, "pipelines.md",
		"Replicas are split over several MIG instances, as `pipeline` of a GPUFunction says, and move to one instance later."},
	{PlanApply, alpha, "0.1", []string{"gshare-controller"}, "planning.md",
		"The replicas of one function serve others, as an InferencePlan with `mode: Apply` says."},
	{ResourceClaims, alpha, "0.1", []string{"gshare-node"}, "claims.md",
		"The agent offers the GPUs that `kubernetes.resourceClaims` lists to resource claims."},
	{Swap, alpha, "0.1", []string{"gshare-controller", "gshare-node"}, "use.md",
		"Pods with `gshare.dev/isolation: swap` hold the memory of a GPU in turn, on nodes with `kubernetes.swap`."},
}

// Gates is the state of the feature gates in one program.
type Gates struct {
	featuregate.MutableFeatureGate
	program string
}

// New returns the gates of a program with their defaults. Its method AddFlag adds the flag --feature-gates.
func New(program string) *Gates {
	g := &Gates{featuregate.NewFeatureGate(), program}
	if err := AddTo(g); err != nil {
		panic(err) // two gates of the same name
	}
	return g
}

// AddTo adds the gates to those of a program that has others, too.
func AddTo(others featuregate.MutableFeatureGate) error {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, g := range gates {
		specs[g.name] = g.spec
	}
	return others.Add(specs)
}

// Of returns the gates of a program that already has gates, to which AddTo has added these.
func Of(program string, all featuregate.MutableFeatureGate) *Gates { return &Gates{all, program} }

// Refuse returns an error if a feature is off. The error begins with what asks for the feature, such as a field, and says how to turn it on.
func (g *Gates) Refuse(feature featuregate.Feature, asks string) error {
	if g.Enabled(feature) {
		return nil
	}
	i := slices.IndexFunc(gates, func(g gate) bool { return g.name == feature })
	return fmt.Errorf("%s: the feature %s is %s and off: start %s with --feature-gates=%[2]s=true", asks, feature, gates[i].stage(), g.program)
}

// stage returns the stage of a gate in the words of the documentation.
func (g gate) stage() string {
	if g.spec.PreRelease == featuregate.Alpha {
		return "Alpha"
	}
	return "Beta"
}
