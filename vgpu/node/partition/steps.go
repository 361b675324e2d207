package partition

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// settle looks at the device and closes the step that was under way, if any, by what is there.
func (m *Manager) settle() ([]Instance, error) {
	found, err := m.device.Instances()
	if err != nil {
		return nil, fmt.Errorf("instances of %s: %w", m.record.Device, err)
	}
	m.forget(found)
	settled := m.record.settle(found)
	if m.record.Intent == nil && slices.Equal(m.record.Made, settled.Made) {
		return found, nil
	}
	return found, m.save(settled)
}

// forget ends the hold on instances that are gone, as after a reset: the driver may give their UUIDs to the next.
func (m *Manager) forget(found []Instance) {
	there := map[string]bool{}
	for _, i := range found {
		there[i.UUID] = true
	}
	maps.DeleteFunc(m.held, func(uuid string, _ bool) bool { return !there[uuid] })
}

// view shows the instances to the rule. One with parts for compute instances is of somebody who made them.
func (m *Manager) view(found []Instance) (now []geometry.Instance) {
	for _, i := range found {
		parts := i.Compute > 0 && i.UUID == ""
		now = append(now, geometry.Instance{
			Instance: i.Instance, Ready: i.UUID != "",
			Used:  i.Busy || parts || m.held[i.UUID],
			Fixed: !slices.Contains(m.record.Made, placeOf(i.Instance)),
		})
	}
	return now
}

// take takes steps until one fails.
func (m *Manager) take(steps []geometry.Step) error {
	for _, s := range steps {
		if err := m.save(m.record.intend(s)); err != nil {
			return err
		}
		if err := m.device.Do(s); err != nil {
			return fmt.Errorf("%s: %s: %w", m.record.Device, s, err)
		}
		if err := m.save(m.record.done()); err != nil {
			return err
		}
	}
	return nil
}

// save writes the record before it counts. After an error the file may hold either of the two: both are true of the device.
func (m *Manager) save(r record) error {
	if err := m.store.Save(r.encode()); err != nil {
		return fmt.Errorf("write the journal of %s: %w", m.record.Device, err)
	}
	m.record = r
	return nil
}
