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

	"github.com/gshare-dev/gshare/node/inventory"
)

// Node is the node on whose behalf a Plugin answers: it decides what is offered, granted and freed.
type Node interface {
	// OfferedToClaims returns what the node offers to resource claims now.
	OfferedToClaims() Offer
	// PrepareClaim grants the parts of devices that a claim was allocated, and returns the CDI device for the container that uses the claim. It may
	// be called again for the same claim.
	PrepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim, parts []Part) (cdiDevice string, err error)
	// UnprepareClaim frees whatever PrepareClaim has granted for the claim, if anything.
	UnprepareClaim(ctx context.Context, claim types.UID) error
}

// Offer is what a node offers to resource claims.
type Offer struct {
	Slices  []inventory.Slice // the slices of which claims get shares
	Known   bool              // false until the node has learned its slices: an empty offer must not replace what an earlier agent published
	Checked time.Time         // when the GPU driver last listed the devices; zero if it has not answered since the start
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

	// HealthTimeout is how long an answer of the GPU driver remains valid; after that the kubelet considers the health of the devices unknown.
	HealthTimeout time.Duration
}

// startRetry is the pause before another attempt when the sockets of the plugin could not be opened, as on a node whose kubelet has not started yet.
const startRetry = time.Second

// Run serves the kubelet until the context ends. Claims stay prepared after that.
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
		kubeletplugin.Serialize(false), // so that a claim that waits for MPS does not hold up the others
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	return p.publishOffers(ctx, helper.PublishResources, dropped)
}

// publishOffers publishes what the node offers, and again after each change, until the context ends. Once dropped is closed it no longer offers
// placements: without their counters, a scheduler would allocate instances that cannot exist together.
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
	droppedCounters func() // called if the API server does not store the counters of placements
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. An error for one claim does not affect the others.
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

// devicesOf returns the devices of a prepared claim in the form that the kubelet takes. The container gets a single CDI device with everything that
// its share needs; only the first device names it, for all requests of the claim.
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

// partitionable is the Kubernetes feature gate that counters need.
const partitionable = "DRAPartitionableDevices"

// HandleError implements kubeletplugin.DRAPlugin: it logs an operation that failed in the background and is tried again.
func (s service) HandleError(_ context.Context, err error, text string) {
	s.Log.Error(text, "driver", Driver, "error", err)
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) && slices.Contains(dropped.DisabledFeatures(), partitionable) {
		s.Log.Error("MIG instances on demand are not offered to resource claims until the agent restarts: the feature gate "+partitionable+
			" is off in the API server", "driver", Driver)
		s.droppedCounters()
	}
}
