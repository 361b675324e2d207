package serving

import (
	"github.com/gshare-dev/gshare/vgpu/planning"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Spec is the file format of a simulation's input: hardware, prices, and functions with their profiles. Times are in seconds.
type Spec struct {
	GPUs         int                `json:"gpus"` // whole ones, to be shared
	GPUMemoryMiB int64              `json:"gpuMemoryMiB"`
	MIG          MIGSpec            `json:"mig"`
	Transfer     float64            `json:"transfer"` // between two stages of a pipeline
	Models       []profile.Model    `json:"models"`   // for plans
	Prices       planning.PriceList `json:"prices"`
	Platform     planning.Platform  `json:"platform"` // what is left out has usual values
	Functions    []FunctionSpec     `json:"functions"`
}

// MIGSpec describes GPUs of one model and the geometries into which they can be partitioned, by name.
type MIGSpec struct {
	Model      string                `json:"model"`
	Geometries map[string][]GPUGroup `json:"geometries"`
}

// GPUGroup is a number of simulated GPUs with the same MIG profiles.
type GPUGroup struct {
	Count    int      `json:"count"`
	Profiles []string `json:"profiles"`
}

// FunctionSpec is a function with its load and its profiles. Shares and the nodes' tables are file names.
type FunctionSpec struct {
	Name      string  `json:"name"`
	SLO       float64 `json:"slo"`      // or
	SLOScale  float64 `json:"sloScale"` // of the time of all nodes on the smallest slices that hold them
	LoadCold  float64 `json:"loadCold"`
	LoadWarm  float64 `json:"loadWarm"`
	MemoryMiB int64   `json:"memoryMiB"`

	Series int     `json:"series"` // of the trace, the busiest is 0; -1 is the sum of all; beyond the last it starts again
	Scale  float64 `json:"scale"`  // requests for each of the trace; 1 if left out
	Shift  float64 `json:"shift"`  // fraction of the trace after which the function begins

	Shares string     `json:"shares"` // a table of ReadShares
	Model  string     `json:"model"`  // of Models
	Nodes  []NodeSpec `json:"nodes"`  // components on MIG instances

	Replicas *ReplicasSpec `json:"replicas"` // on a cluster
	Turns    *TurnsSpec    `json:"turns"`    // on a cluster, of class swap
}

// TurnsSpec is a Turns whose times are in seconds.
type TurnsSpec struct {
	Slice  string    `json:"slice"`
	Takes  float64   `json:"takes"`
	Begins []float64 `json:"begins"`
	Leaves []float64 `json:"leaves"`
}

// ReplicasSpec is how a function is served on a cluster. The fields that a GPUFunction has, too, have the same meaning and defaults, but times are
// in seconds.
type ReplicasSpec struct {
	SM                int64   `json:"sm"`    // percent
	Quota             int64   `json:"quota"` // percent
	Takes             float64 `json:"takes"` // of a request
	Ends              float64 `json:"ends"`  // from a replica's last request until its share is free
	QuotaLimit        int64   `json:"quotaLimit"`
	QuotaWindow       float64 `json:"quotaWindow"` // of the nodes
	RequestsPerSecond float64 `json:"requestsPerSecond"`
	MinReplicas       int     `json:"minReplicas"`
	MaxReplicas       int     `json:"maxReplicas"`
	Window            int     `json:"window"`
	ScaleOutVotes     int     `json:"scaleOutVotes"`
	ScaleInVotes      int     `json:"scaleInVotes"`
	KeepShared        float64 `json:"keepShared"`
}

// NodeSpec describes one component of a function that runs on MIG instances, with the table of its execution times.
type NodeSpec struct {
	Name      string         `json:"name"`
	After     []string       `json:"after"` // the node before, if left out
	Table     string         `json:"table"` // a table of ReadSlices
	Batch     int            `json:"batch"` // batch size of the table that stands for one request
	MemoryMiB int64          `json:"memoryMiB"`
	Chance    share.PerMille `json:"chance"`
	NotOn     []string       `json:"notOn"` // MIG profiles on which it does not run, even if the table lists them
}
