package serving

import (
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Spec is the file format of a simulation's input: hardware, prices, and functions with their profiles. Times are in seconds.
type Spec struct {
	GPUs         int                `json:"gpus"` // whole GPUs, to be shared
	GPUMemoryMiB int64              `json:"gpuMemoryMiB"`
	MIG          MIGSpec            `json:"mig"`
	Transfer     float64            `json:"transfer"` // time between two stages of a pipeline
	Models       []profile.Model    `json:"models"`   // for plans
	Prices       planning.PriceList `json:"prices"`
	Platform     planning.Platform  `json:"platform"` // fields left out have the usual values
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

// FunctionSpec is a function with its load and its profiles. Shares and the tables of Nodes are file names.
type FunctionSpec struct {
	Name      string  `json:"name"`
	SLO       float64 `json:"slo"`      // either this or SLOScale
	SLOScale  float64 `json:"sloScale"` // SLO as a multiple of the time of all nodes on the smallest slices that hold them
	LoadCold  float64 `json:"loadCold"`
	LoadWarm  float64 `json:"loadWarm"`
	MemoryMiB int64   `json:"memoryMiB"`

	Series int     `json:"series"` // index of the trace's series, 0 being the busiest; -1 is their sum; past the last it starts again at the first
	Scale  float64 `json:"scale"`  // number of requests per request of the trace; 1 if left out
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

// ReplicasSpec says how a function is served on a cluster. Fields that a GPUFunction also has have the same meaning and defaults, except that
// times are in seconds.
type ReplicasSpec struct {
	SM                int64   `json:"sm"`    // percent
	Quota             int64   `json:"quota"` // percent
	Takes             float64 `json:"takes"` // time of a request
	Ends              float64 `json:"ends"`  // time from a replica's last request until its share is free
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
	After     []string       `json:"after"` // the previous node, if left out
	Table     string         `json:"table"` // a table of ReadSlices
	Batch     int            `json:"batch"` // batch size in the table whose times are those of one request
	MemoryMiB int64          `json:"memoryMiB"`
	Chance    share.PerMille `json:"chance"`
	NotOn     []string       `json:"notOn"` // MIG profiles on which it does not run, even if the table lists them
}
