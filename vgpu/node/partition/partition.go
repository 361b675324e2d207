// Package partition makes MIG instances on a node's GPU when they are asked for, and keeps idle ones for the next. A journal
// says which are gshare's and which step is under way, so that an agent that ended at any moment leaves nothing behind that
// the next one does not know. What is in use, or was made by others, is never removed.
package partition

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// Config describes the GPU of a Manager. No other may use the GPU or its journal until the process of this one is gone: the
// kernel keeps a process whose call hangs in the driver, and with it the agent's lock.
type Config struct {
	Device Device
	UUID   string // of the GPU
	Store  Store  // its journal
	Boot   string // see Boot
}

// Manager changes the instances of one GPU. It serves concurrent callers, one after another.
type Manager struct {
	device Device
	store  Store

	mu     sync.Mutex // guards the following, and the device
	record record
	held   map[string]bool // by UUID
}

// Open takes over what an earlier Manager left, down to a step that was under way: it is adopted if the device shows that
// it was taken. It changes nothing on the device. The error is ErrJournal where the journal is not such a record; without the
// file, all instances would count as made by others.
func Open(c Config) (*Manager, error) {
	m := &Manager{device: c.Device, store: c.Store, held: map[string]bool{}}
	var err error
	if m.record, err = c.load(); err != nil {
		return nil, err
	}
	_, err = m.settle()
	return m, err
}

// Made says that the journal tells of instances, or of a step that may have made one. It needs no device. The error is that of Open.
func (c Config) Made() (bool, error) {
	r, err := c.load()
	return len(r.Made) > 0 || r.Intent != nil, err
}

func (c Config) load() (record, error) {
	text, err := c.Store.Load()
	if err != nil {
		return record{}, fmt.Errorf("journal of %s: %w", c.UUID, err)
	}
	r, err := recordIn(text, c)
	if err != nil {
		return record{}, fmt.Errorf("journal of %s: %w: %w", c.UUID, ErrJournal, err)
	}
	return r, nil
}

// recordIn reads the journal; that of an earlier boot says nothing any more.
func recordIn(text []byte, c Config) (record, error) {
	empty := record{Version: version, Boot: c.Boot, Device: c.UUID}
	if text == nil {
		return empty, empty.validate()
	}
	r, err := parse(text)
	switch {
	case err != nil:
		return r, err
	case r.Device != c.UUID:
		return r, fmt.Errorf("it is that of %.64q", r.Device)
	case r.Boot != c.Boot:
		return empty, nil
	}
	return r, nil
}

// Obtain gives the instance in one place, and holds it until it is released: an idle one, or a new one in the room of idle ones.
// The error is ErrNoRoom where the instances in use leave none, ErrInUse where the device says so of one that seemed idle.
func (m *Manager) Obtain(at mig.Instance) (Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range looks {
		found, err := m.settle()
		if err != nil {
			return Instance{}, err
		}
		steps, ok := geometry.Plan(m.view(found), at)
		if !ok {
			return Instance{}, fmt.Errorf("%w %s", ErrNoRoom, at.Profile.Name)
		}
		if len(steps) == 0 {
			return m.hold(found, at)
		}
		if err := m.take(steps); err != nil {
			_, settled := m.settle()
			return Instance{}, errors.Join(err, settled)
		}
	}
	return Instance{}, fmt.Errorf("%s at %d: the device does not show what it has made", at.Profile.Name, at.Start)
}

// looks are those of Obtain: one before the steps and one after them, when a process may have come.
const looks = 2

// Hold holds an instance that a container has had since before this Manager. The error is ErrNotFound where it is gone.
func (m *Manager) Hold(at mig.Instance) (Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.settle()
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

// Instances lists those that gshare made, and those that others did.
func (m *Manager) Instances() (ours, others []Instance, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.settle()
	for _, i := range found {
		if slices.Contains(m.record.Made, placeOf(i.Instance)) {
			ours = append(ours, i)
		} else {
			others = append(others, i)
		}
	}
	return ours, others, err
}

// Holds is how many instances are held.
func (m *Manager) Holds() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}

// Release lets an instance be given or removed, once no process runs on it.
func (m *Manager) Release(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, uuid)
}

func (m *Manager) hold(found []Instance, at mig.Instance) (Instance, error) {
	for _, i := range found {
		if i.Instance == at {
			m.held[i.UUID] = true
			return i, nil
		}
	}
	return Instance{}, fmt.Errorf("the plan gives %v, which the device does not show", at)
}
