// Package partition creates MIG instances on a node's GPU on demand, and keeps idle ones for reuse. A journal records which instances gshare
// created and which step is being executed, so that whenever an agent ends, the next one recognizes everything that it left. Instances that
// are in use, or that others created, are never removed.
package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// Config configures the Manager of a GPU's MIG instances. No other process may use the GPU or its journal until this process has ended: if
// a call hangs in the driver, the kernel keeps the process, and with it the agent's lock.
type Config struct {
	Device Device
	UUID   string // of the GPU
	Store  Store  // of its journal
	BootID string // see BootID
}

// Manager creates and removes the MIG instances of one GPU. It is safe for concurrent use; callers wait for each other and for the driver.
type Manager struct {
	device Device
	store  Store

	mu     sync.Mutex // guards the following and the device
	record record
	held   map[string]bool // by UUID
}

// Open returns a Manager that continues the journal of an earlier one. A step that was being executed counts as done if the device shows
// its result; Open changes nothing on the device. The error is ErrJournal if the journal is invalid. If there is no journal, all instances
// count as created by others.
func Open(c Config) (*Manager, error) {
	m := &Manager{device: c.Device, store: c.Store, held: map[string]bool{}}
	var err error
	if m.record, err = c.loadJournal(); err != nil {
		return nil, err
	}
	_, err = m.reconcile()
	return m, err
}

// HasInstances reports whether the journal contains instances, or a step that may have created one. It does not access the device. It
// returns the same errors as Open.
func (c Config) HasInstances() (bool, error) {
	r, err := c.loadJournal()
	return len(r.Made) > 0 || r.Intent != nil, err
}

func (c Config) loadJournal() (record, error) {
	text, err := c.Store.Load()
	if err != nil {
		return record{}, fmt.Errorf("read MIG journal of %s: %w", c.UUID, err)
	}
	r, err := c.parseJournal(text)
	if err != nil {
		return record{}, fmt.Errorf("read MIG journal of %s: %w: %w", c.UUID, ErrJournal, err)
	}
	return r, nil
}

// parseJournal parses the journal. It returns an empty record if the journal is of an earlier boot, since MIG instances do not survive a
// reboot.
func (c Config) parseJournal(text []byte) (record, error) {
	empty := record{Version: recordVersion, Boot: c.BootID, Device: c.UUID}
	if text == nil {
		return empty, empty.validate()
	}
	r, err := parseRecord(text)
	switch {
	case err != nil:
		return r, err
	case r.Device != c.UUID:
		return r, fmt.Errorf("journal belongs to GPU %.64q", r.Device)
	case r.Boot != c.BootID:
		return empty, nil
	}
	return r, nil
}

// obtainAttempts is how often Obtain lists the instances: before it changes them, and once more after that, as a process may have started on
// one meanwhile.
const obtainAttempts = 2

// Obtain returns the MIG instance at a placement, protected until Release. It reuses an idle instance, or creates one and removes idle ones
// that overlap it. The error is ErrInsufficientResources if instances in use overlap it, and ErrInUse if one that seemed idle is not.
func (m *Manager) Obtain(at mig.Instance) (Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range obtainAttempts {
		found, err := m.reconcile()
		if err != nil {
			return Instance{}, err
		}
		steps, ok := geometry.Plan(m.plannerInstances(found), at)
		if !ok {
			return Instance{}, fmt.Errorf("%w %s", ErrInsufficientResources, at.Profile.Name)
		}
		if len(steps) == 0 {
			return m.hold(found, at)
		}
		if err := m.applySteps(steps); err != nil {
			_, reconcileErr := m.reconcile()
			return Instance{}, errors.Join(err, reconcileErr)
		}
	}
	return Instance{}, fmt.Errorf("%s at %d: the device does not list the MIG instance that it created", at.Profile.Name, at.Start)
}

// Hold protects, until Release, an existing instance that a container has been using since the time of an earlier Manager. The error is
// ErrNotFound if the instance no longer exists.
func (m *Manager) Hold(at mig.Instance) (Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.reconcile()
	if err != nil {
		return Instance{}, err
	}
	for _, i := range found {
		if i.Instance == at && i.UUID != "" {
			return m.hold(found, at)
		}
	}
	return Instance{}, ErrNotFound
}

// Instances returns the GPU's MIG instances: those that gshare created, and those that others created.
func (m *Manager) Instances() (created, foreign []Instance, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.reconcile()
	for _, i := range found {
		if slices.Contains(m.record.Made, placementOf(i.Instance)) {
			created = append(created, i)
		} else {
			foreign = append(foreign, i)
		}
	}
	return created, foreign, err
}

// HeldCount returns the number of instances that are protected by Obtain or Hold.
func (m *Manager) HeldCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}

// Release ends the protection of an instance by Obtain or Hold. It may then be reused or removed once no process runs on it.
func (m *Manager) Release(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, uuid)
}

// Clear removes all instances that gshare created, for uninstalling. The error is ErrInUse if some remain because they are held or have
// processes.
func (m *Manager) Clear() (remaining error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.reconcile()
	if err != nil {
		return err
	}
	for _, i := range m.plannerInstances(found) {
		switch {
		case i.Fixed:
		case i.Used:
			remaining = errors.Join(remaining, fmt.Errorf("%w: %s at %d", ErrInUse, i.Profile.Name, i.Start))
		default:
			remaining = errors.Join(remaining, m.applySteps(geometry.RemovalSteps(i)))
		}
	}
	return remaining
}

// hold protects the instance at a placement, which must be among those found. The caller of this and the following methods holds the lock.
func (m *Manager) hold(found []Instance, at mig.Instance) (Instance, error) {
	for _, i := range found {
		if i.Instance == at {
			m.held[i.UUID] = true
			return i, nil
		}
	}
	return Instance{}, fmt.Errorf("the device does not list the planned MIG instance %v", at)
}

// reconcile lists the device's instances and updates the journal: a step that was being executed is recorded as done or dropped, and
// instances that no longer exist are removed.
func (m *Manager) reconcile() ([]Instance, error) {
	found, err := m.device.Instances()
	if err != nil {
		return nil, fmt.Errorf("list MIG instances of %s: %w", m.record.Device, err)
	}
	m.releaseMissing(found)
	r := m.record.reconciled(found)
	if m.record.Intent == nil && slices.Equal(m.record.Made, r.Made) {
		return found, nil
	}
	return found, m.saveRecord(r)
}

// releaseMissing drops the protection of instances that no longer exist, as after a reset. The driver may give their UUIDs to new instances.
func (m *Manager) releaseMissing(found []Instance) {
	exists := map[string]bool{}
	for _, i := range found {
		exists[i.UUID] = true
	}
	maps.DeleteFunc(m.held, func(uuid string, _ bool) bool { return !exists[uuid] })
}

// plannerInstances converts instances for geometry.Plan. Instances with partial compute instances count as used by whoever created these.
func (m *Manager) plannerInstances(found []Instance) (view []geometry.Instance) {
	for _, i := range found {
		partial := i.ComputeInstances > 0 && i.UUID == ""
		view = append(view, geometry.Instance{
			Instance: i.Instance, Ready: i.UUID != "",
			Used:  i.Busy || partial || m.held[i.UUID],
			Fixed: !slices.Contains(m.record.Made, placementOf(i.Instance)),
		})
	}
	return view
}

// applySteps executes steps until one fails, and writes the journal before and after each.
func (m *Manager) applySteps(steps []geometry.Step) error {
	for _, s := range steps {
		if err := m.saveRecord(m.record.withIntent(s)); err != nil {
			return err
		}
		if err := m.device.Apply(s); err != nil {
			return fmt.Errorf("%s on %s: %w", s, m.record.Device, err)
		}
		if err := m.saveRecord(m.record.completed()); err != nil {
			return err
		}
	}
	return nil
}

// saveRecord writes the journal. After an error the file may hold the old record or the new one, and both are consistent with the device.
func (m *Manager) saveRecord(r record) error {
	if err := m.store.Save(r.encode()); err != nil {
		return fmt.Errorf("write MIG journal of %s: %w", m.record.Device, err)
	}
	m.record = r
	return nil
}

// Errors that callers test for.
var (
	ErrInsufficientResources = errors.New("insufficient free resources for the MIG instance") // NVML: INSUFFICIENT_RESOURCES
	ErrInUse                 = errors.New("MIG instance is in use")                           // NVML: IN_USE
	ErrNotFound              = errors.New("MIG instance not found")                           // NVML: NOT_FOUND
	ErrNoGPU                 = errors.New("GPU not found by the driver")                      // it was replaced
	ErrNoMIG                 = errors.New("GPU is not in MIG mode")
	ErrJournal               = errors.New("MIG journal is invalid") // which instances gshare created is unknown
)

// Instance is a GPU instance (the MIG term for a partition with its own SMs and memory) as the device reports it.
type Instance struct {
	mig.Instance
	UUID             string // of the compute instance that has all of it; empty if there is none
	ComputeInstances int    // number of compute instances
	Busy             bool   // processes run on it
}

// Device creates and destroys the MIG instances of one GPU. Calls may block for as long as the driver does. Instances and the steps passed
// to Apply refer to the same profiles. Implementations need not be safe for concurrent use.
type Device interface {
	// Instances returns the GPU instances that exist. With an error the list may be incomplete.
	Instances() ([]Instance, error)
	// Apply executes a step on the instance at the step's placement. A compute instance gets all of its GPU instance. The error is
	// ErrInsufficientResources, ErrInUse or ErrNotFound if the device reports that. After any error the step may have been executed.
	Apply(geometry.Step) error
}
