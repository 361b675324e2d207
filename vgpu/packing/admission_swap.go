package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// checkTurns returns why a share of class swap cannot take turns with the shares on the slice, or Admitted. Neither SM-time nor limits are
// added up, because only one share runs at a time.
func (s *Slice) checkTurns(l *Load, sh share.Share) Refusal {
	if sh.Memory > s.TurnMemory(l) {
		return NoMemory
	}
	return Admitted
}

// TurnMemory returns the most memory with which a further share could take turns with those on a slice of class swap; 0 if none can. Two
// conditions must hold for all shares together:
//
//   - Each fits beside the memory that the others keep while they wait, so that it can begin its turn whoever had the one before.
//   - The sum of their memory is at most that of the slice and of the host, so that there is a place for what they give back between turns.
func (s *Slice) TurnMemory(l *Load) share.Bytes {
	most := s.Memory - s.Swap.Kept*share.Bytes(len(l.residents))
	for i := range l.residents {
		if l.residents[i].Share.Memory > most {
			return 0
		}
	}
	return max(0, min(most, s.Memory+s.Swap.Host-l.memory))
}

// area returns the SM-time that the share takes from others on its slice. A share of class swap takes none, because it runs in a turn of
// its own.
func (a *ShareRequest) area() share.Area {
	if a.Terms.Isolation == share.Swap {
		return 0
	}
	return a.Share.RequestArea()
}

// settlingCost returns the cost that outweighs whatever else speaks for another slice or node, so that a pod joins others like it: one with
// weights goes where its weights already are, and one of class swap to a slice of that class, so that these pods take no more slices from
// others than they need.
func settlingCost(n *Node, pod *Pod, picks []Choice) int64 {
	if pod.Request.Isolation != share.Swap {
		return loadingCost(n, pod, picks)
	}
	if len(picks) == 0 {
		return 0
	}
	var taken int64
	for _, p := range picks {
		if n.Loads[p.Slice].Empty() {
			taken++
		}
	}
	return taken * loadingSteps / int64(len(picks)) * costOfStep // at most as much as loadingCost
}
