// Package enforcement has the texts of enforcement statuses that nodes of a cluster and single machines share: what limits a share.
package enforcement

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// Texts of enforcement statuses: by what a share is limited, and what is not enforced.
const (
	HookAndTokens  = "hook and token server"
	BelowLimit     = " at the limit, hook and token server below it" // after the MPS feature that limits the SMs
	Simulated      = "the devices are simulated"
	NonMPSProcess  = "a process runs without MPS, and its SMs are not limited"
	MPSEnvironment = "a program that changes its environment loosens the limits of MPS"
	MemoryBypass   = "a program that avoids hook and MPS is not limited in memory"
)

// MPS returns the name of the MPS feature that limits a share: whether its processes are in a namespace, whose limits they cannot loosen.
func MPS(namespace bool) string {
	if namespace {
		return "MPS namespace"
	}
	return "MPS"
}

// SMs returns what caps the SMs of a share, and at how many of a slice's: MPS rounds its limit. profile is the slice's, empty for a GPU.
func SMs(mps string, limit share.PerMille, sms int, profile string) string {
	return fmt.Sprintf("%s, %d of %d SMs", mps, supervisor.Cap(limit, sms), sms) + InsideMIG(profile)
}

// Memory returns what limits the device memory of a share, the strongest first. confirmed is the limit that the driver has confirmed; 0: none.
func Memory(mps string, confirmed share.Bytes) string {
	if confirmed > 0 {
		return fmt.Sprintf("dmem (%d MiB), hook, %s", confirmed/share.MiB, mps)
	}
	return "hook, " + mps
}

// InsideMIG returns the suffix for a share inside a MIG instance, which programs cannot leave; empty for a whole GPU.
func InsideMIG(profile string) string {
	if profile == "" {
		return ""
	}
	return ", inside of MIG " + profile
}
