package planning

import (
	"fmt"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Mode is a way to execute a model: on what resources, and how they are billed.
type Mode string

// The modes. Profiles and prices determine which is cheaper or faster (P22).
const (
	CPU         Mode = "cpu"         // whole, one function (PA-04)
	GPU         Mode = "gpu"         // whole, one function with some GB of a card (PA-05)
	Partitioned Mode = "partitioned" // stages of functions on vCPUs (PA-06)
	Share       Mode = "share"       // whole, on gshare shares that are held, not paid by call
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{CPU, GPU, Partitioned, Share} }

func has(m *profile.Model, mode Mode) bool {
	switch mode {
	case CPU:
		return m.CPU != nil
	case GPU:
		return m.GPU != nil
	case Partitioned:
		return m.Partitioned != nil
	case Share:
		return m.Share != nil
	}
	return false
}

// onGPU reports whether the mode needs a GPU.
func (m Mode) onGPU() bool { return m == GPU || m == Share }

// Config is a mode with its resources and the maximum batch size. Fields of other modes are zero.
type Config struct {
	Mode  Mode `json:"mode"`
	Batch int  `json:"batch"` // the most that leave together

	CPU       profile.MilliCPU     `json:"milliCPU,omitempty"`  // of the function
	Memory    share.Bytes          `json:"memory,omitempty"`    // of the function, or of the share, on the device
	GPUGB     int                  `json:"gpuGB,omitempty"`     // of the card
	Workers   [][]profile.MilliCPU `json:"workers,omitempty"`   // by stage
	SM        share.PerMille       `json:"sm,omitempty"`        // of the share
	Quota     share.PerMille       `json:"quota,omitempty"`     // of the share
	Instances int                  `json:"instances,omitempty"` // held; 0: as calls need them
}

// String returns the resources as text, such as "0.5 vCPU, 512 MiB".
func (c Config) String() string {
	switch c.Mode {
	case CPU:
		return fmt.Sprintf("%s vCPU, %d MiB", vcpus(c.CPU), c.Memory/share.MiB)
	case GPU:
		return fmt.Sprintf("%d GB of a GPU", c.GPUGB)
	case Partitioned:
		return "vCPU " + stages(c.Workers)
	}
	return fmt.Sprintf("%d x %s SM x %s time, %d MiB", c.Instances, c.SM.Percent(), c.Quota.Percent(), c.Memory/share.MiB)
}

func stages(workers [][]profile.MilliCPU) string {
	var text []string
	for _, stage := range workers {
		var parts []string
		for _, c := range stage {
			parts = append(parts, vcpus(c))
		}
		text = append(text, strings.Join(parts, "+"))
	}
	return strings.Join(text, " | ")
}

func vcpus(c profile.MilliCPU) string { return fmt.Sprintf("%g", float64(c)/1000) }
