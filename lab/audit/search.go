package audit

import (
	"fmt"
	"slices"
	"strings"
)

// searchBudget is the number of tests for one pod on one node.
const searchBudget = 1 << 16

// search tries all ways to place the containers of a pod on copies of a node's slices.
type search struct {
	final  *final
	pod    *applicant
	slices []*slice
	failed map[string]bool // by container and state of the slices
	budget int
}

func newSearch(f *final, n *node, a *applicant) *search {
	s := &search{final: f, pod: a, failed: map[string]bool{}, budget: searchBudget}
	for _, original := range n.slices {
		copied := *original
		s.slices = append(s.slices, &copied)
	}
	return s
}

// container places container c and all after it.
func (s *search) container(c int) bool {
	if c == len(s.pod.request.Containers) {
		return true
	}
	state := s.state(c)
	if s.failed[state] {
		return false
	}
	done := s.choose(c, nil, 0)
	s.failed[state] = !done
	return done
}

// choose places the next vGPU of container c on a slice at or after from; taken are the devices of those before it. The vGPUs are
// equal, so only ascending choices are tried, and of equal slices only the first.
func (s *search) choose(c int, taken []string, from int) bool {
	if len(taken) == s.pod.request.Containers[c].VGPUs {
		return s.container(c + 1)
	}
	tried := map[string]bool{}
	for i := from; i < len(s.slices); i++ {
		on := s.slices[i]
		name := on.name()
		if tried[name] || slices.Contains(taken, on.Device) {
			continue
		}
		tried[name] = true
		if s.place(c, taken, i) {
			return true
		}
	}
	return false
}

// place tries slice i for the next vGPU and undoes it if the rest then does not fit.
func (s *search) place(c int, taken []string, i int) bool {
	if s.budget--; s.budget < 0 {
		return false
	}
	on := s.slices[i]
	class, ok := s.final.admits(on, s.pod, c)
	if !ok {
		return false
	}
	before := on.load
	on.add(held{tenant: s.pod.pod.Namespace, packing: s.pod.packing, class: class, share: s.pod.request.Containers[c].Share})
	if s.choose(c, append(taken[:len(taken):len(taken)], on.Device), i+1) {
		return true
	}
	on.load = before
	return false
}

// state returns a key of the remaining vGPUs and slices.
func (s *search) state(c int) string {
	names := make([]string, len(s.slices))
	for i, on := range s.slices {
		names[i] = on.name()
	}
	slices.Sort(names)
	return fmt.Sprint(c, names)
}

// name returns a key that interchangeable slices share. A MIG instance has neighbours on its device, so only instances of one
// device are interchangeable.
func (s *slice) name() string {
	shares := make([]string, len(s.held))
	for i, h := range s.held {
		shares[i] = fmt.Sprint(h.tenant, h.packing, h.class, h.share)
	}
	slices.Sort(shares)
	device := ""
	if s.Profile != "" {
		device = s.Device
	}
	return fmt.Sprintf("%q %q %q %d %d %d %v %v %s", s.Model, s.Profile, device, s.MemoryMiB, s.Reserve, s.MaxShares,
		s.Healthy, s.Classes, strings.Join(shares, ";"))
}
