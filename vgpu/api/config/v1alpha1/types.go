// Package v1alpha1 defines the configuration of the scheduler plugins: the args in the pluginConfig of a KubeSchedulerConfiguration.
package v1alpha1

// SharingArgs holds the arguments that all packing plugins have.
type SharingArgs struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`

	// CandidateNodes is the maximum number of nodes, best first, that the other plugins filter for one pod. For a pod that they judge only
	// by resources, taints and node affinity, it is the best node alone. The choice stays exact: all other nodes rank lower, and if every
	// candidate is refused the pod is tried on more nodes, in the end on all of them. 0 always tries every node. Default 64.
	CandidateNodes *int `json:"candidateNodes,omitempty"`
}

// SlotPackingArgs holds the arguments of the scheduler plugin SlotPacking.
type SlotPackingArgs struct {
	SharingArgs `json:",inline"`

	// Balance switches the terms of the cost by which nodes are ranked. Without any of them the ranking is best fit.
	Balance BalanceArgs `json:"balance,omitempty"`
}

// BalanceArgs switches the terms of the cost by which SlotPacking ranks nodes. Each is on by default.
type BalanceArgs struct {
	// Fragmentation keeps free GPU time usable for pods that are typical of the cluster.
	Fragmentation *bool `json:"fragmentation,omitempty"`
	// Stranding avoids leaving remainders on a slice that few pods could use.
	Stranding *bool `json:"stranding,omitempty"`
	// CPUShortage avoids leaving free GPU time on nodes that lack the CPU to use it.
	CPUShortage *bool `json:"cpuShortage,omitempty"`
	// Scarcity keeps GPU models that some pods require free for those pods.
	Scarcity *bool `json:"scarcity,omitempty"`
}

// RectanglePackingArgs holds the arguments of the scheduler plugin RectanglePacking.
type RectanglePackingArgs struct {
	SharingArgs `json:",inline"`
}

// ComplementaryPackingArgs holds the arguments of the scheduler plugin ComplementaryPacking.
type ComplementaryPackingArgs struct {
	SharingArgs `json:",inline"`

	// AlphaPercent is the weight of the SMs that stay free on a GPU when GPUs are compared. Default 60.
	AlphaPercent *int64 `json:"alphaPercent,omitempty"`

	// BetaPercent is the weight of the memory that stays free. The two weights add up to 100. Default: 100 minus AlphaPercent.
	BetaPercent *int64 `json:"betaPercent,omitempty"`
}
