package audit

import (
	"fmt"
	"slices"
	"strings"
)

// searchBudget bounds the admission tests for one pod on one node.
const searchBudget = 1 << 16

// search tries all ways to place the containers of a pod on copies of a node's slices.
type search struct {
	final  *finalState
	pod    *pendingPod
	slices []*slice
	failed map[string]bool // states already tried in vain, by container and state of the slices
	budget int
}

func newSearch(f *finalState, n *node, a *pendingPod) *search {
	s := &search{final: f, pod: a, failed: map[string]bool{}, budget: searchBudget}
	for _, original := range n.slices {
		copied := *original
		s.slices = append(s.slices, &copied)
	}
	return s
}

// placeContainer places container c of the pod and all containers after it, and reports whether it succeeded.
func (s *search) placeContainer(c int) bool {
	if c == len(s.pod.request.Containers) {
		return true
	}
	state := s.stateKey(c)
	if s.failed[state] {
		return false
	}
	done := s.choose(c, nil, 0)
	s.failed[state] = !done
	return done
}

// choose places the next vGPU of container c on a slice with an index of at least from, on a device that is not taken, and then all
// further vGPUs. The vGPUs of a container are equal, so it tries only ascending slices, and only the first of several equal slices.
func (s *search) choose(c int, taken []string, from int) bool {
	if len(taken) == s.pod.request.Containers[c].VGPUs {
		return s.placeContainer(c + 1)
	}
	tried := map[string]bool{}
	for i := from; i < len(s.slices); i++ {
		on := s.slices[i]
		name := on.key()
		if tried[name] || slices.Contains(taken, on.Device) || s.pod.repels(s.slices, on) {
			continue
		}
		tried[name] = true
		if s.placeOn(c, taken, i) {
			return true
		}
	}
	return false
}

// placeOn places the next vGPU of container c on slice i, then all further vGPUs, and undoes the placement if that fails.
func (s *search) placeOn(c int, taken []string, i int) bool {
	if s.budget--; s.budget < 0 {
		return false
	}
	on := s.slices[i]
	class, ok := s.final.admits(on, s.pod, c)
	if !ok {
		return false
	}
	before := on.load
	on.add(heldShare{tenant: s.pod.pod.Namespace, packing: s.pod.packing, class: class, share: s.pod.request.Containers[c].Share,
		weights: s.pod.request.Weights, antiAffinity: s.pod.request.AntiAffinity})
	if s.choose(c, append(taken[:len(taken):len(taken)], on.Device), i+1) {
		return true
	}
	on.load = before
	return false
}

// stateKey returns a string that identifies the containers still to be placed and the state of the slices.
func (s *search) stateKey(c int) string {
	names := make([]string, len(s.slices))
	for i, on := range s.slices {
		names[i] = on.key()
	}
	slices.Sort(names)
	return fmt.Sprint(c, names)
}

// key returns a string that is equal for interchangeable slices. A MIG instance has neighbours on its device, so only instances of one
// device are interchangeable.
func (s *slice) key() string {
	shares := make([]string, len(s.held))
	for i, h := range s.held {
		shares[i] = fmt.Sprint(h.tenant, h.packing, h.class, h.share, h.weights, h.antiAffinity)
	}
	slices.Sort(shares)
	device := ""
	if s.Profile != "" {
		device = s.Device
	}
	return fmt.Sprintf("%q %q %q %d %d %d %v %v %v %s", s.Model, s.Profile, device, s.MemoryMiB, s.Reserve, s.MaxShares,
		s.Healthy, s.Store, s.Classes, strings.Join(shares, ";"))
}
