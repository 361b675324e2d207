// Package grant decides which container gets which part of the node's GPUs. It has no sockets, files
// or clocks: from what the kubelet recorded and the pod asks for it computes a grant or a refusal.
package grant

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Owner identifies the container that holds a grant.
type Owner struct {
	UID       types.UID // of the pod
	Namespace string
	Name      string // of the pod
	Container string
}

// ID returns an identifier of the container that is unique while its pod exists. It is short because it is part of socket paths, which are
// limited to 107 bytes.
func (o Owner) ID() string {
	sum := sha256.Sum256([]byte(string(o.UID) + "\n" + o.Container))
	return hex.EncodeToString(sum[:8])
}

// String returns namespace/pod/container, for logs.
func (o Owner) String() string { return o.Namespace + "/" + o.Name + "/" + o.Container }

// Grant is the share of the node's GPUs that the agent has given to a container. It never changes: later changes of the pod's annotations
// have no effect.
type Grant struct {
	Owner
	Tickets []string // sorted
	Model   kube.FitModel
	VGPUs   []kube.PlacedVGPU
	Since   time.Time
	// BestEffort is true if the pod accepts that its share is not enforced. Its enforcement status lists what is not.
	BestEffort bool
}

// Class returns the isolation class of the grant, which is the same on all of its slices.
func (g *Grant) Class() share.Isolation { return g.VGPUs[0].Class }

// Holds reports whether the grant has exactly these tickets, in any order.
func (g *Grant) Holds(tickets []string) bool {
	return slices.Equal(g.Tickets, slices.Sorted(slices.Values(tickets)))
}
