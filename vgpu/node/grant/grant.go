// Package grant decides which container gets which part of the node's GPUs. It knows no sockets, files or clocks: the agent
// tells it what the kubelet recorded and what the pod says, and it answers with a grant or with a refusal (DESIGN 4).
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

// Owner is a container of a pod, as the kubelet names it.
type Owner struct {
	UID       types.UID // of the pod
	Namespace string
	Name      string // of the pod
	Container string
}

// ID names the container for as long as its pod lives. It is short: the path of a socket may have 107 bytes.
func (o Owner) ID() string {
	sum := sha256.Sum256([]byte(string(o.UID) + "\n" + o.Container))
	return hex.EncodeToString(sum[:8])
}

// String is for logs: namespace/pod/container.
func (o Owner) String() string { return o.Namespace + "/" + o.Name + "/" + o.Container }

// Grant is what one container has been given. It is frozen: what the pod's annotations say later changes nothing.
type Grant struct {
	Owner
	Tickets []string // sorted
	Model   kube.FitModel
	VGPUs   []kube.PlacedVGPU
	Since   time.Time
	// BestEffort: the pod runs where its share cannot be enforced, and its enforcement status says so.
	BestEffort bool
}

// Class is the isolation class of the slices; those of one container have the same.
func (g *Grant) Class() share.Isolation { return g.VGPUs[0].Class }

// Holds says that the tickets are those of the grant, whatever their order.
func (g *Grant) Holds(tickets []string) bool {
	return slices.Equal(g.Tickets, slices.Sorted(slices.Values(tickets)))
}
