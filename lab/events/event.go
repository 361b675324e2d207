// Package events replays lists of instances that start and stop on a cluster of equal GPUs, under Dilu's packing, the policies that Dilu is
// compared with, and gshare's, and counts the GPUs that each policy needs.
package events

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Event is the start or the end of one instance at a point in time.
type Event struct {
	At       time.Time
	Start    bool // otherwise the instance ends
	Instance Instance
}

// Instance is one running copy of a function: a gang of workers with equal shares on different GPUs.
type Instance struct {
	Name    string // unique among those that run
	LLM     bool   // its model may be divided between GPUs
	GPUs    int
	Request share.PerMille // of each GPU's SMs
	Limit   share.PerMille
	Memory  share.Bytes // on each GPU
}
