package residency

// check holds what must be true after every step.
func (w *world) check() {
	if w.checked == w.changes {
		return
	}
	w.checked = w.changes
	for _, n := range w.nodes {
		var enforced, recorded load
		for _, p := range w.pods {
			have, record, now := n.enforced[p.id], n.file[p.id], p.now()
			enforced.add(p.kind, have, n.parked[p.id])
			recorded.add(p.kind, record.Level, record.Memory)
			if have > record.Level {
				w.fail("record: pod %d runs at %v, above its record %+v", p.id, have, record)
			}
			if have == Warm && record.Level == Warm && n.parked[p.id] > record.Memory {
				w.fail("record: pod %d keeps %d bytes, more than its record %+v", p.id, n.parked[p.id], record)
			}
			counted := w.rules.counted(now.wanted, now.reached)
			more := record.Level > counted || counted == Warm && record.Level == Warm && record.Memory > w.rules.kept(now.reached)
			if !now.gone && more && !w.rules.unchecked {
				w.fail("count: pod %d counts as %v, below its record %+v: wanted %+v, reached %+v", p.id, counted, record, now.wanted, now.reached)
			}
			for _, g := range w.gateways {
				if now.node == n.index && g.inFlight[p.id] > 0 && !have.Serves() {
					w.fail("request: gateway %d has one in pod %d, which is %v", g.incarnation, p.id, have)
				}
			}
		}
		if !enforced.fits() {
			w.fail("overcommitted: what runs on node %d is %+v", n.index, enforced)
		}
		if !recorded.fits() {
			w.fail("overcommitted: the records of node %d are %+v", n.index, recorded)
		}
	}
}

// checkLost fails if a pod was refused its start although the scheduler had counted everything on the slice: there was no raise that it had
// not seen, and no record of a pod that is gone.
func (w *world) checkLost(n *node, lost *pod) {
	if w.rules.emptyBook || n.index != lost.now().node {
		return
	}
	for _, p := range w.pods {
		if n.ended[p.id] && n.file[p.id].Level > Cold {
			return
		}
		for at := 1; at < len(p.history); at++ {
			unseen := p.id >= len(lost.seenAtBinding) || at > lost.seenAtBinding[p.id]
			if unseen && p.history[at].wanted.Level > p.history[at-1].wanted.Level {
				w.events["start lost to a raise"]++
				return
			}
		}
	}
	w.fail("lost: pod %d is refused its start, though nothing was raised since it was bound", lost.id)
}

// checkSettled holds what must be true when nothing changes any more and nothing fails.
func (w *world) checkSettled() {
	for _, p := range w.pods {
		now := p.now()
		switch {
		case now.gone:
		case now.deleting || now.wanted.Level == Cold && now.node >= 0:
			w.fail("stuck: pod %d is not deleted: %v", p.id, now)
		case now.node < 0:
			w.checkPending(p)
		case !w.nodes[now.node].running[p.id]:
			w.checkNotStarted(p, w.nodes[now.node])
		case p.instance:
			w.checkReached(p, w.nodes[now.node])
		}
	}
	for of := range w.reverts {
		if !w.hasReplacement(of) && len(w.pods) < maxPods {
			w.fail("forgotten: pod %d was refused %d and returned to its level without a replacement", of.pod, of.seq)
		}
	}
}

func (w *world) hasReplacement(of replacement) bool {
	for _, p := range w.pods {
		if p.replaces == of {
			return true
		}
	}
	return false
}

// checkPending fails if a pod has no node though one has room, or would have without its Shared instances.
func (w *world) checkPending(p *pod) {
	now := w.list()
	for n := range w.nodes {
		l := countedLoad(w, &now, n, func(other *pod, v version) bool {
			return other.instance && v.wanted.Level == Shared && v.reached.Level == Shared
		})
		l.add(p.kind, Hot, 0)
		if l.fits() && p.now().wanted.Level != Cold {
			w.fail("stuck: pod %d is not bound, though node %d has room or could have", p.id, n)
		}
	}
}

// checkNotStarted fails unless the pod is a user's and its slice has no room: nobody but its user may delete it.
func (w *world) checkNotStarted(p *pod, n *node) {
	if p.instance || n.fits(p, false)(Hot) {
		w.fail("stuck: pod %d on node %d has not started: %v", p.id, n.index, p.now())
	}
}

func (w *world) checkReached(p *pod, n *node) {
	now, record := p.now(), n.file[p.id]
	want := Reached{Seq: now.wanted.Seq, Level: now.wanted.Level}
	if want.Level == Warm {
		want.Memory = n.parked[p.id]
	}
	if now.reached != want || record != want || n.enforced[p.id] != want.Level {
		w.fail("stuck: pod %d wants %+v, reached %+v, has the record %+v and is %v", p.id, now.wanted, now.reached, record, n.enforced[p.id])
	}
}
