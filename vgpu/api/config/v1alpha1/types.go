// Package v1alpha1 is the configuration of the scheduler plugins: the args of a KubeSchedulerConfiguration's pluginConfig.
package v1alpha1

// Tenancy is whether pods of different namespaces may share a slice.
type Tenancy string

// Namespace, the default, lets pods of one namespace at a time on a shared slice. Mixed does not restrict it.
const (
	Namespace Tenancy = "namespace"
	Mixed     Tenancy = "mixed"
)

// SharingArgs are the args that all packing plugins have.
type SharingArgs struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`

	// GammaPercent bounds the sum of SM limit x quota limit on a slice, in percent of the slice. At least 100; default 150.
	GammaPercent *int64 `json:"gammaPercent,omitempty"`

	// Tenancy is "namespace" (default) or "mixed".
	Tenancy Tenancy `json:"tenancy,omitempty"`

	// CandidateNodes is how many of the best nodes the other plugins filter for one pod. The choice stays exact: what is left
	// out ranks lower, and when all candidates are refused the pod is tried on every node. 0 always tries every node.
	// Default 64.
	CandidateNodes *int `json:"candidateNodes,omitempty"`
}

// SlotPackingArgs are the args of the plugin SlotPacking.
type SlotPackingArgs struct {
	SharingArgs `json:",inline"`

	// Balance switches the terms by which nodes are compared. Without any of them the choice is best fit.
	Balance BalanceArgs `json:"balance,omitempty"`
}

// BalanceArgs are the terms of the node choice, each on by default.
type BalanceArgs struct {
	// Fragmentation keeps free GPU time usable for the pods that are typical of the cluster.
	Fragmentation *bool `json:"fragmentation,omitempty"`
	// Stranding avoids leaving slivers on a slice that few pods could use.
	Stranding *bool `json:"stranding,omitempty"`
	// CPUShortage avoids leaving GPU time on nodes that have no CPU left for it.
	CPUShortage *bool `json:"cpuShortage,omitempty"`
	// Scarcity keeps device models that some pods insist on for those pods.
	Scarcity *bool `json:"scarcity,omitempty"`
}

// RectanglePackingArgs are the args of the plugin RectanglePacking.
type RectanglePackingArgs struct {
	SharingArgs `json:",inline"`
}

// ComplementaryPackingArgs are the args of the plugin ComplementaryPacking.
type ComplementaryPackingArgs struct {
	SharingArgs `json:",inline"`

	// AlphaPercent weighs the SMs that stay free on a GPU when GPUs are compared. Default 60.
	AlphaPercent *int64 `json:"alphaPercent,omitempty"`

	// BetaPercent weighs the memory that stays free. The two add up to 100. Default what AlphaPercent leaves.
	BetaPercent *int64 `json:"betaPercent,omitempty"`
}
