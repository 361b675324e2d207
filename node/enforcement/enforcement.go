// Package enforcement has texts about what limits a share. Nodes of a cluster and single machines use the same ones in enforcement statuses.
package enforcement

import (
	"fmt"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// Texts of enforcement statuses: what limits a share, and what is not enforced.
const (
	HookAndTokens  = "hook and token server"
	IdleOnly       = ", only in time that others leave"              // follows HookAndTokens, for an instance of a function at level Shared
	BelowLimit     = " at the limit, hook and token server below it" // follows the MPS feature that limits the SMs
	Simulated      = "the devices are simulated"
	NonMPSProcess  = "a process runs without MPS, and its SMs are not limited"
	MPSEnvironment = "a program that changes its environment loosens the limits of MPS"
	Refused        = "a process is refused and may use nothing: " // before the reason
	SelfPaced      = "a process has a session and does not follow the token server: it paces itself"
	Unserved       = "no token server serves it, and it keeps to its policy file"
	MPSDaemon      = "the MPS daemon "    // the beginning of texts about limitations of a slice's MPS daemon
	DriverCounts   = "the driver counts " // the beginning of what MemoryCounts returns
	MemoryBypass   = "a program that avoids hook and MPS is not limited in memory"
)

// MemoryCounts compares what the driver and the hook count of the memory of a share's processes.
func MemoryCounts(c watchdog.MemoryCounts) string {
	return fmt.Sprintf(DriverCounts+"%d MiB of its processes, the hook %d MiB, and the share has %d MiB",
		c.Driver/share.MiB, c.Ledger/share.MiB, c.Granted/share.MiB)
}

// Unhooked says that a process runs without the hook. through names a library by which it uses the GPU, reason is that of watchdog.WhyUnhooked; both
// may be empty.
func Unhooked(through, reason string) string {
	text := "a process runs" + through + " without the hook, and is not limited in time"
	if reason != "" {
		text += ": its program is " + reason
	}
	return text
}

// MPS returns the name by which enforcement statuses refer to MPS. namespace means that the container runs in an MPS namespace, whose limits
// its processes cannot loosen.
func MPS(namespace bool) string {
	if namespace {
		return "MPS namespace"
	}
	return "MPS"
}

// SMs describes what caps the SMs of a share, such as "MPS, 54 of 108 SMs" (MPS rounds). sms is the number of SMs of the slice, profile its
// MIG profile; empty for a whole GPU.
func SMs(mps string, limit share.PerMille, sms int, profile string) string {
	return fmt.Sprintf("%s, %d of %d SMs", mps, supervisor.Cap(limit, sms), sms) + InsideMIG(profile)
}

// Memory describes what limits the device memory of a share, the strongest mechanism first. confirmed is the limit that the driver has
// confirmed; 0 if there is none.
func Memory(mps string, confirmed share.Bytes) string {
	if confirmed > 0 {
		return fmt.Sprintf("dmem (%d MiB), hook, %s", confirmed/share.MiB, mps)
	}
	return "hook, " + mps
}

// InsideMIG returns the suffix that says that a share is inside a MIG instance, which programs cannot leave. It is empty for a whole GPU.
func InsideMIG(profile string) string {
	if profile == "" {
		return ""
	}
	return ", inside of MIG " + profile
}

// Neighbour is another container or run on the same slice.
type Neighbour struct {
	Name     string // as the owner of the enforcement status may see it
	Overruns token.Overruns
}

// Overruns returns what an enforcement status says of kernels and CUDA graphs that lasted longer than the turns of their share, which no
// GPU interrupts: that the share delayed neighbours, or that neighbours delayed the share.
func Overruns(own token.Overruns, neighbours []Neighbour) (texts []string) {
	names := func(affected func(token.Overruns) bool) string {
		var list []string
		for _, n := range neighbours {
			if affected(n.Overruns) {
				list = append(list, n.Name)
			}
		}
		return strings.Join(list, ", ")
	}
	if delayed := names(func(o token.Overruns) bool { return o.Delayed }); own.Long && delayed != "" {
		texts = append(texts, "its kernels or graphs outlast its turns and delay "+delayed+"; it repays the time")
	}
	if by := names(func(o token.Overruns) bool { return o.Long }); own.Delayed && by != "" {
		texts = append(texts, "it is delayed by kernels or graphs of "+by+", and gets its time later")
	}
	return texts
}
