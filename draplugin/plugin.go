package draplugin

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gshare-dev/gshare/vgpu/node/inventory"
)

// Node decides the answers of a Plugin.
type Node interface {
	// OfferedToClaims returns what the node offers to resource claims now.
	OfferedToClaims() Offer
	// PrepareClaim grants a claim's parts and returns the CDI device for the container that uses the claim. It may be called again.
	PrepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim, parts []Part) (cdiDevice string, err error)
	// UnprepareClaim frees what PrepareClaim has granted, if it has.
	UnprepareClaim(ctx context.Context, claim types.UID) error
}

// Offer is what a node offers to resource claims.
type Offer struct {
	Slices  []inventory.Slice // of which claims get shares
	Known   bool              // false until the node has learnt its slices: an empty offer must not replace what an earlier agent published
	Checked time.Time         // when the driver has listed the devices last; zero if it has not answered since the start
	Changed <-chan struct{}   // closed when Slices or Known change
}

// Plugin registers the driver with the kubelet, serves its calls, and publishes the ResourceSlices of the node.
type Plugin struct {
	Client   kubernetes.Interface
	NodeName string
	Plugins  string // the kubelet's directory of plugins, in which the driver has a directory with its socket
	Registry string // the directory in which the kubelet finds plugins
	Node     Node
	Log      *slog.Logger

	// HealthTimeout is how long the driver's answer counts: after it the kubelet takes the health of the devices for unknown.
	HealthTimeout time.Duration
}

// startRetry is the pause after the sockets of the plugin could not be opened, as on a node whose kubelet has not started yet.
const startRetry = time.Second

// Run serves until the context ends. Claims stay prepared.
func (p *Plugin) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.serve(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error("failed to serve resource claims", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(startRetry):
			}
		}
	}
}

func (p *Plugin) serve(ctx context.Context) error {
	data := filepath.Join(p.Plugins, Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	dropped := make(chan struct{})
	helper, err := kubeletplugin.Start(ctx, service{Plugin: p, droppedCounters: sync.OnceFunc(func() { close(dropped) })},
		kubeletplugin.DriverName(Driver), kubeletplugin.KubeClient(p.Client), kubeletplugin.NodeName(p.NodeName),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(p.Registry),
		kubeletplugin.Serialize(false), // a claim that waits for MPS does not hold up the others
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	return p.publishOffers(ctx, helper.PublishResources, dropped)
}

// publishOffers publishes what the node offers, again with each change, until the context ends. Placements are not offered any more once dropped is
// closed: without their counters a scheduler would allocate instances that cannot exist together.
func (p *Plugin) publishOffers(
	ctx context.Context, publish func(context.Context, resourceslice.DriverResources) error, dropped <-chan struct{},
) error {
	without := false
	for ctx.Err() == nil {
		offer := p.Node.OfferedToClaims()
		if without {
			offer.Slices = slices.DeleteFunc(slices.Clone(offer.Slices), isPlacement)
		}
		if offer.Known {
			if err := publish(ctx, Resources(p.NodeName, offer.Slices)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-offer.Changed:
		case <-dropped:
			dropped, without = nil, true
		}
	}
	return nil
}

// service answers the calls of the kubelet.
type service struct {
	*Plugin
	droppedCounters func() // called when the API server does not store the counters of placements
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. An error of one claim does not concern the others.
func (s service) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := s.prepare(ctx, claim)
		if err != nil {
			s.Log.Warn("failed to prepare a resource claim", "claim", claim.Namespace+"/"+claim.Name, "error", err)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	return results, nil
}

func (s service) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	parts, err := Parts(claim, s.NodeName)
	if err != nil {
		return nil, err
	}
	device, err := s.Node.PrepareClaim(ctx, claim, parts)
	if err != nil {
		return nil, err
	}
	return devicesOf(parts, s.NodeName, device), nil
}

// devicesOf returns the devices of a prepared claim for the kubelet. The container has one CDI device, with all that its share needs; it is
// named once, on the first device, for all requests.
func devicesOf(parts []Part, pool, cdiDevice string) (devices []kubeletplugin.Device) {
	var requests []string
	for _, part := range parts {
		if !slices.Contains(requests, part.Request) {
			requests = append(requests, part.Request)
		}
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{part.Request}, PoolName: pool, DeviceName: part.Device, ShareID: &part.ShareID,
		})
	}
	devices[0].Requests, devices[0].CDIDeviceIDs = requests, []string{cdiDevice}
	return devices
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (s service) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = s.Node.UnprepareClaim(ctx, claim.UID)
	}
	return results, nil
}

// partitionable is the feature gate of counters.
const partitionable = "DRAPartitionableDevices"

// HandleError implements kubeletplugin.DRAPlugin: it logs what failed in the background, which is tried again.
func (s service) HandleError(_ context.Context, err error, text string) {
	s.Log.Error(text, "driver", Driver, "error", err)
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) && slices.Contains(dropped.DisabledFeatures(), partitionable) {
		s.Log.Error("MIG instances on demand are not offered to resource claims until the agent restarts: the feature gate "+partitionable+
			" is off in the API server", "driver", Driver)
		s.droppedCounters()
	}
}
