package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// deviceMonitor keeps the inventory of the node: the slices that it offers, their health, and who uses them without a share.
type deviceMonitor struct {
	*Options
	slices   *sliceRuntime
	grants   *grantStore
	publish  func() // requests publication
	list     asyncCall[[]gpu.Device]
	appeared chan struct{} // requests a refresh: a GPU was opened

	mu             sync.Mutex // guards the following
	inventory      inventory.Inventory
	podsBound      bool              // pods with shares are bound to the node
	used           map[string]string // slices that are used without a share, by ID: by whom
	ticketsChanged chan struct{}     // closed and replaced when they change
}

func newDeviceMonitor(o *Options, r *sliceRuntime, s *grantStore, publish func()) *deviceMonitor {
	return &deviceMonitor{
		Options: o, slices: r, grants: s, publish: publish, list: asyncCall[[]gpu.Device]{call: o.Source.Devices},
		appeared: make(chan struct{}, 1), podsBound: true, ticketsChanged: make(chan struct{}), // until the pods are known
	}
}

func (m *deviceMonitor) inventoryConfig() inventory.Config {
	c := m.Config
	return inventory.Config{
		Owned: c.Devices, Cordoned: slices.Concat(c.Kubernetes.Cordon, c.Kubernetes.Drain, m.slices.cordoned()),
		Classes: m.slices.classes(), Reserve: *c.ReservePerMille, MaxShares: c.MaxShares,
	}
}

// current returns the inventory.
func (m *deviceMonitor) current() inventory.Inventory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory
}

// slice returns a slice of the inventory.
func (m *deviceMonitor) slice(id string) (s inventory.Slice, ok bool) {
	all := m.current().Slices()
	if i := slices.IndexFunc(all, func(s inventory.Slice) bool { return s.ID == id }); i >= 0 {
		return all[i], true
	}
	return s, false
}

// usedBy returns who uses a slice without a share; empty if nobody does.
func (m *deviceMonitor) usedBy(slice string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used[slice]
}

// tickets returns the tickets of the inventory, and a channel that is closed when they change.
func (m *deviceMonitor) tickets() ([]string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ticket.All(m.inventory.Tickets()), m.ticketsChanged
}

// indexes returns the indexes of slices in the inventory; -1 for one that is not there.
func (m *deviceMonitor) indexes(ids []string) (indexes []int) {
	all := m.current().Slices()
	for _, id := range ids {
		indexes = append(indexes, slices.IndexFunc(all, func(s inventory.Slice) bool { return s.ID == id }))
	}
	return indexes
}

// update replaces the inventory by what change makes of it, for the admission of containers too. What is bound or granted must not
// disappear from it; it returns the inventories before and after.
func (m *deviceMonitor) update(change func(inv inventory.Inventory, bound bool) inventory.Inventory) (before, after inventory.Inventory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.inventory
	m.grants.updateSlices(func(granted bool) ([]packing.Slice, map[string]string) {
		m.inventory = change(before, m.podsBound || granted).WithUsed(m.used)
		return m.inventory.Packing(), m.used
	})
	if !slices.Equal(before.Tickets(), m.inventory.Tickets()) {
		broadcast(&m.ticketsChanged)
	}
	return before, m.inventory
}

// refresh updates the inventory by the devices that the driver lists now. It returns errHung if that takes longer than the timeout.
func (m *deviceMonitor) refresh(ctx context.Context, timeout time.Duration) error {
	devices, err := m.list.Await(ctx, timeout)
	if err != nil && !errors.Is(err, gpu.ErrNoGPU) {
		return err // no change is known
	}
	m.slices.setListed(devices)
	config := m.inventoryConfig()
	before, after := m.update(func(inv inventory.Inventory, bound bool) inventory.Inventory {
		return inv.Update(config, devices, bound)
	})
	m.reportFaults(before.Slices(), after.Slices())
	m.publish()
	return nil
}

// reportFaults writes events on the pods whose slices have failed or recovered.
func (m *deviceMonitor) reportFaults(before, after []inventory.Slice) {
	for _, now := range after {
		i := slices.IndexFunc(before, func(s inventory.Slice) bool { return s.ID == now.ID })
		if i < 0 || before[i].Fault == now.Fault {
			continue
		}
		m.Log.Warn("health of a slice has changed", "slice", now.ID, "fault", now.Fault)
		for _, g := range m.grants.on(now.ID) {
			if now.Fault != "" {
				m.Cluster.Warn(podOf(g), "GPUFault", "slice "+now.ID+": "+now.Fault)
			} else {
				m.Cluster.Notify(podOf(g), "GPURecovered", "slice "+now.ID+" works again")
			}
		}
	}
}

// firstRefresh blocks until the inventory is known. While the driver hangs it uses the one that was published last, if there is one: the
// kubelet fails pods whose devices are not registered. The health loop then takes over the driver's answer.
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

// usePublished admits containers by the inventory that was published last; false if there is none.
func (m *deviceMonitor) usePublished() bool {
	_, inv := m.update(func(inv inventory.Inventory, _ bool) inventory.Inventory { return inv })
	return len(inv.Slices()) > 0
}

// loop refreshes the inventory periodically, and drains slices.
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

// drain evicts the pods on the slices that are configured to be drained.
func (m *deviceMonitor) drain(ctx context.Context) {
	for _, g := range m.toDrain() {
		if err := m.Cluster.Evict(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, g.UID); err != nil {
			m.Log.Warn("failed to evict a pod from a drained slice", "pod", g.String(), "error", err)
		}
	}
}

// toDrain returns the grants on the slices that are configured to be drained.
func (m *deviceMonitor) toDrain() (grants []grant.Grant) {
	for _, s := range m.current().Slices() {
		for _, uuid := range m.Config.Kubernetes.Drain {
			if s.ID == uuid || s.Device == uuid {
				grants = append(grants, m.grants.on(s.ID)...)
			}
		}
	}
	return grants
}

// setPodsBound stores whether pods with shares are bound to the node. While they are, the inventory must not shrink.
func (m *deviceMonitor) setPodsBound(bound bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.podsBound != bound {
		m.podsBound = bound
		m.publish()
	}
}

// isBound reports whether pods with shares may be bound to the node.
func (m *deviceMonitor) isBound() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.podsBound || m.grants.any()
}

// setUsed stores who uses slices without a share. Such slices are not offered, and take no new container, until they are free.
func (m *deviceMonitor) setUsed(used map[string]string) {
	m.mu.Lock()
	before := m.used
	m.used = used
	m.mu.Unlock()
	if maps.Equal(before, used) {
		return
	}
	m.Log.Warn("use of slices without a share has changed", "before", before, "now", used)
	m.update(func(inv inventory.Inventory, _ bool) inventory.Inventory { return inv })
	m.publish()
}

// inventoryName is the file with the inventory that was published last.
const inventoryName = "inventory.json"

// loadPublished loads the inventory that was published last, from this machine's file or, after a reboot, from the API server.
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
		return
	}
	config := m.inventoryConfig()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inventory = inventory.Restore(config, published)
}

// savePublished saves the inventory that is about to be published, for the next agent.
func (m *deviceMonitor) savePublished(text string) error {
	return atomicfile.WriteFile(filepath.Join(m.Config.Directory, inventoryName), []byte(text), 0o644)
}

// profileOf returns the MIG profile of the slices of a container; empty for whole GPUs.
func (m *deviceMonitor) profileOf(g *grant.Grant) string {
	s, _ := m.slice(g.VGPUs[0].Slice)
	return s.Profile
}
