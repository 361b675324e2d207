package partition

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// Clear removes the instances that gshare made, for an agent that does not come back. The error is ErrInUse where one stays because
// it is held or processes run on it.
func (m *Manager) Clear() (left error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.settle()
	if err != nil {
		return err
	}
	for _, i := range m.view(found) {
		switch {
		case i.Fixed:
		case i.Used:
			left = errors.Join(left, fmt.Errorf("%w: %s at %d", ErrInUse, i.Profile.Name, i.Start))
		default:
			left = errors.Join(left, m.take(geometry.Removal(i)))
		}
	}
	return left
}
