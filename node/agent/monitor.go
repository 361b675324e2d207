package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// deviceMonitor keeps the inventory of the node: its slices (whole GPUs or MIG instances), their health, and which of them are used without
// a share.
type deviceMonitor struct {
	*Options
	slices   *sliceRuntime
	grants   *grantStore
	publish  func() // requests publication
	list     asyncCall[[]gpu.Device]
	appeared chan struct{} // requests a refresh after a GPU was opened

	mu               sync.Mutex // guards the following
	inventory        inventory.Inventory
	podsBound        bool              // pods with shares are bound to the node
	used             map[string]string // for each slice that is used without a share, by ID: who uses it
	deviceIDsChanged chan struct{}     // closed and replaced when they change
	checked          time.Time         // when the driver last listed the devices; zero: not yet for this agent
	claimsLoaded     bool              // the slices of resource claims are those that the last agent left
	offersChanged    chan struct{}     // closed and replaced when the slices of resource claims change
}

func newDeviceMonitor(o *Options, r *sliceRuntime, s *grantStore, publish func()) *deviceMonitor {
	return &deviceMonitor{
		Options: o, slices: r, grants: s, publish: publish, list: asyncCall[[]gpu.Device]{call: o.Source.Devices},
		appeared: make(chan struct{}, 1), podsBound: true, // until the pods are known
		deviceIDsChanged: make(chan struct{}), offersChanged: make(chan struct{}),
	}
}

func (m *deviceMonitor) inventoryConfig() inventory.Config {
	c := m.Config
	return inventory.Config{
		Owned: c.Devices, Claimed: c.Kubernetes.ResourceClaims, Cordoned: slices.Concat(c.Kubernetes.Cordon, c.Kubernetes.Drain, m.slices.withdrawnPlacements()),
		Classes: m.slices.classes(), Reserve: *c.ReservePerMille, Contexts: share.Bytes(*c.ContextReserveMiB) * share.MiB, MaxShares: c.MaxShares,
		Store: c.Kubernetes.ModelStore, Swap: m.slices.swap(),
	}
}

func (m *deviceMonitor) currentInventory() inventory.Inventory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory
}

func (m *deviceMonitor) sliceByID(id string) (s inventory.Slice, ok bool) {
	all := m.currentInventory().Slices()
	if i := slices.IndexFunc(all, func(s inventory.Slice) bool { return s.ID == id }); i >= 0 {
		return all[i], true
	}
	return s, false
}

// usedBy describes who uses a slice without having a share there; empty if nobody does.
func (m *deviceMonitor) usedBy(slice string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used[slice]
}

// device IDs returns the device IDs of gshare/vgpu for the inventory, and a channel that is closed when they change.
func (m *deviceMonitor) deviceIDs() ([]string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return deviceid.All(m.inventory.DeviceIDs()), m.deviceIDsChanged
}

// offered returns what the node offers to resource claims.
func (m *deviceMonitor) offered() draplugin.Offer {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.claimsLoaded || !m.checked.IsZero()
	return draplugin.Offer{Slices: m.inventory.OfClaims(), Known: known, Checked: m.checked, Changed: m.offersChanged}
}

// sliceIndexes returns the positions of slices in the published inventory, by which device IDs are numbered. It is -1 for a slice that is not
// in the inventory.
func (m *deviceMonitor) sliceIndexes(ids []string) (indexes []int) {
	all := m.currentInventory().Published().Slices
	for _, id := range ids {
		indexes = append(indexes, slices.IndexFunc(all, func(s kube.Slice) bool { return s.ID == id }))
	}
	return indexes
}

// updateInventory replaces the inventory by the result of change and returns the old and the new one. change is called with the holders,
// whose slices must not disappear. The new inventory also decides which shares can be granted.
func (m *deviceMonitor) updateInventory(
	change func(inventory.Inventory, inventory.Holders) inventory.Inventory,
) (before, after inventory.Inventory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.inventory
	m.grants.updateSlices(func(h inventory.Holders) grant.Slices {
		h.Bound, h.Placed = h.Bound || m.podsBound, h.Placed || m.podsBound
		m.inventory = change(before, h).WithUsed(m.used)
		claims := map[string]bool{}
		for _, s := range m.inventory.OfClaims() {
			claims[s.ID] = true
		}
		return grant.Slices{All: m.inventory.Packing(m.Config.Rules()), Used: m.used, Claims: claims, Kept: m.inventory.Kept()}
	})
	if !reflect.DeepEqual(before.OfClaims(), m.inventory.OfClaims()) {
		broadcast(&m.offersChanged)
	}
	if !slices.Equal(before.DeviceIDs(), m.inventory.DeviceIDs()) {
		broadcast(&m.deviceIDsChanged)
	}
	return before, m.inventory
}

// refresh lists the devices of the driver and updates the inventory from them. It returns errHung if the driver takes longer than the
// timeout.
func (m *deviceMonitor) refresh(ctx context.Context, timeout time.Duration) error {
	devices, err := m.list.Await(ctx, timeout)
	if err != nil && !errors.Is(err, gpu.ErrNoGPU) {
		return err // nothing is known to have changed
	}
	m.slices.setDevices(devices)
	config := m.inventoryConfig()
	before, after := m.updateInventory(func(inv inventory.Inventory, h inventory.Holders) inventory.Inventory {
		return inv.Update(config, devices, h)
	})
	m.setChecked(time.Now())
	m.reportFaults(before.Slices(), after.Slices())
	m.publish()
	return nil
}

// setChecked stores when the driver last listed the devices. The first time, what the node offers to resource claims becomes known, and
// their driver is told.
func (m *deviceMonitor) setChecked(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checked.IsZero() {
		broadcast(&m.offersChanged)
	}
	m.checked = at
}

// reportFaults writes events on the pods whose slices have failed or recovered between two inventories.
func (m *deviceMonitor) reportFaults(before, after []inventory.Slice) {
	for _, now := range after {
		i := slices.IndexFunc(before, func(s inventory.Slice) bool { return s.ID == now.ID })
		if i < 0 || before[i].Fault == now.Fault {
			continue
		}
		m.Log.Warn("health of a slice has changed", "slice", now.ID, "fault", now.Fault)
		for _, g := range m.grants.onSlice(now.ID) {
			if now.Fault != "" {
				m.Cluster.Warn(podOf(g), eventFault, "slice "+now.ID+": "+now.Fault)
			} else {
				m.Cluster.Notify(podOf(g), eventRecovered, "slice "+now.ID+" works again")
			}
		}
	}
}

// firstRefresh blocks until the devices of the node are known. While the driver hangs it falls back to the inventory that was published
// last, since the kubelet fails pods whose device plugin is not registered. The health loop refreshes it later.
func (m *deviceMonitor) firstRefresh(ctx context.Context) error {
	for ctx.Err() == nil {
		err := m.refresh(ctx, startTimeout)
		if !errors.Is(err, errHung) {
			return err
		}
		m.Log.Error("failed to list the devices", "error", err)
		if m.usePublished() {
			return nil
		}
	}
	return nil
}

// usePublished makes shares be granted by the inventory that was published last. It returns false if that has no slices.
func (m *deviceMonitor) usePublished() bool {
	_, inv := m.updateInventory(func(inv inventory.Inventory, _ inventory.Holders) inventory.Inventory { return inv })
	return len(inv.Slices()) > 0
}

// loop refreshes the inventory periodically, and evicts pods from slices that are being drained.
func (m *deviceMonitor) loop(ctx context.Context) {
	for ctx.Err() == nil {
		period := m.Config.Kubernetes.HealthPeriod.Duration
		select {
		case <-ctx.Done():
		case <-m.appeared:
		case <-time.After(period):
		}
		if err := m.refresh(ctx, period); err != nil && ctx.Err() == nil {
			m.Log.Error("failed to list the devices", "error", err)
		}
		m.drain(ctx)
	}
}

// drain evicts the pods on slices that the configuration drains. It logs failed evictions; the next call repeats them.
func (m *deviceMonitor) drain(ctx context.Context) {
	for _, g := range m.grantsToDrain() {
		if err := m.Cluster.Evict(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, g.UID); err != nil {
			m.Log.Warn("failed to evict a pod from a drained slice", "pod", g.String(), "error", err)
		}
	}
}

// grantsToDrain returns the grants on slices that the configuration drains.
func (m *deviceMonitor) grantsToDrain() (grants []grant.Grant) {
	for _, s := range m.currentInventory().Slices() {
		for _, uuid := range m.Config.Kubernetes.Drain {
			if s.ID == uuid || s.Device == uuid {
				grants = append(grants, m.grants.onSlice(s.ID)...)
			}
		}
	}
	return grants
}

// setPodsBound stores whether pods with shares are bound to the node. While there are such pods, the published inventory does not shrink.
func (m *deviceMonitor) setPodsBound(bound bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.podsBound != bound {
		m.podsBound = bound
		m.publish()
	}
}

// isBound reports whether pods that request gshare's resources may be bound to the node, because they are listed or have grants.
func (m *deviceMonitor) isBound() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.podsBound || m.grants.hasPlaced()
}

// setUsed stores, by slice ID, who uses slices without having a share there. Until such users are gone, the node does not offer their slices
// or start containers on them.
func (m *deviceMonitor) setUsed(used map[string]string) {
	m.mu.Lock()
	before := m.used
	m.used = used
	m.mu.Unlock()
	if maps.Equal(before, used) {
		return
	}
	m.Log.Warn("use of slices without a share has changed", "before", before, "now", used)
	m.updateInventory(func(inv inventory.Inventory, _ inventory.Holders) inventory.Inventory { return inv })
	m.publish()
}

// Names of two files: the inventory that was published last, and the slices of resource claims, which the inventory does not contain.
const (
	inventoryName = "inventory.json"
	claimsName    = "claims.json"
)

// loadPublished loads the inventory that was published last: from the agent's files, or from the API server if these are missing, as after a
// reboot. The API server does not know the slices of resource claims.
func (m *deviceMonitor) loadPublished(ctx context.Context) {
	text, err := os.ReadFile(filepath.Join(m.Config.Directory, inventoryName))
	published := kube.Inventory{}
	if err == nil {
		published, err = kube.DecodeInventory(string(text))
	}
	if err != nil {
		published, err = m.Cluster.Published(ctx)
	}
	if err != nil {
		m.Log.Warn("failed to load the published inventory", "error", err)
	}
	config := m.inventoryConfig()
	restored := inventory.Restore(config, published)
	text, err = os.ReadFile(filepath.Join(m.Config.Directory, claimsName))
	if err == nil {
		restored, err = restored.WithClaims(config, text)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.Log.Warn("failed to load the slices of resource claims", "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inventory, m.claimsLoaded = restored, err == nil
}

// savePublished writes files for the next agent: the inventory in the form that is about to be published (text), and the slices of resource
// claims.
func (m *deviceMonitor) savePublished(inv inventory.Inventory, text string) error {
	if m.offered().Known { // otherwise an agent whose driver does not answer would tell the next one that there are none
		claims, err := inv.EncodeClaims()
		if err != nil {
			return err
		}
		if err := atomicfile.WriteFile(filepath.Join(m.Config.Directory, claimsName), claims, 0o644); err != nil {
			return err
		}
	}
	return atomicfile.WriteFile(filepath.Join(m.Config.Directory, inventoryName), []byte(text), 0o644)
}

// profileOf returns the MIG profile of a grant's slices, or an empty string for whole GPUs.
func (m *deviceMonitor) profileOf(g *grant.Grant) string {
	s, _ := m.sliceByID(g.VGPUs[0].Slice)
	return s.Profile
}
