package audit

import "github.com/gshare-dev/gshare/vgpu/share"

// inTurn reports whether the shares on a slice hold its memory in turn, that is, whether all of them are of class swap.
func (l *load) inTurn() bool {
	for i := range l.held {
		if l.held[i].class != share.Swap {
			return false
		}
	}
	return len(l.held) > 0
}

// canTakeTurns reports whether the shares on a slice, and more shares with the given memory each, can hold its memory in turn: each one must fit beside what
// the others keep there, and all together must fit into the memory of the slice and the host.
func (s *slice) canTakeTurns(more ...share.Bytes) bool {
	if s.Swap == nil {
		return false
	}
	all := more
	for i := range s.held {
		all = append(all, s.held[i].share.Memory)
	}
	left := s.capacity() + share.Bytes(s.Swap.HostMiB)*share.MiB
	kept := share.Bytes(s.Swap.KeptMiB) * share.MiB * share.Bytes(len(all)-1)
	for _, memory := range all {
		if left -= memory; memory > s.capacity()-kept {
			return false
		}
	}
	return left >= 0
}

func (c *checker) checkTurns(n *node, s *slice) {
	if !s.canTakeTurns() {
		c.violate(Violation{Kind: Memory, Node: n.object.Name, Slice: s.ID}, "%d shares cannot hold the %d MiB of the slice in turn", len(s.held), s.MemoryMiB)
	}
}
