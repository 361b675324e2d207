package residency

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// rules are what the participants call; a mutant replaces some of them.
type rules struct {
	counted func(Wanted, Reached) Level
	kept    func(Reached) share.Bytes
	start   func(Wanted, func(Level) bool) (Reached, bool)
	next    func(Instance, func(Level) bool) Step
	change  func(Wanted, Reached, Level) (Wanted, bool)
	review  func(w Wanted, r Reached, replaced, drained bool) Task
	maySend func(Wanted, Reached) bool
	stopped func(seen, asked Wanted, inFlight int) bool

	// What the participants themselves must do, and a mutant does not.
	emptyBook     bool // the agent does not read its records when it starts
	oldGateways   bool // the controller lists the gateways once, when it starts
	listsFirst    bool // a gateway lists the pods before it registers
	staleGateway  bool // a gateway's first list comes from a cache
	blindWrites   bool // the controller writes without a resourceVersion
	keepsAnswers  bool // the controller takes the answers of gateways for another Seq
	ignoresQueued bool // for a raise the agent does not count pods that have not started
	unchecked     bool // check does not compare records with what the scheduler counts
	keepsShared   bool // the controller gives up no Shared instance for a pod without room
}

func rulesOfPackage() rules {
	return rules{counted: Counted, kept: func(r Reached) share.Bytes { return r.Memory }, start: Start, next: Next, change: Change, review: Review, maySend: MaySend, stopped: hasStopped}
}

// hasStopped is a gateway's answer to the controller: whether the gateway has seen the Wanted that the controller asks about, so that it
// sends no more requests to the instance, and has none in flight.
func hasStopped(seen, asked Wanted, inFlight int) bool {
	return seen.Seq >= asked.Seq && !seen.Level.Serves() && inFlight == 0
}

// grants are records by pod; Level Cold: none.
type grants [maxPods]Reached

// node is a node with its kubelet, its containers and its agent.
type node struct {
	world *world
	index int

	// What survives the agent.
	file     grants // grant.json
	enforced [maxPods]Level
	parked   [maxPods]share.Bytes // what is left to those that are Warm
	running  [maxPods]bool
	ended    [maxPods]bool // the container has ended and will not start again

	// What does not.
	view  view
	book  grants
	known [maxPods]Level       // what the agent enforces, as far as it knows
	kept  [maxPods]share.Bytes // what it has left to those that it has parked
	fails [maxPods]int64       // Seq of the Warm that could not be enforced
}

func (n *node) restart() {
	n.world.events["agent restarts"]++
	n.world.changed("agent %d restarts", n.index)
	n.view, n.book, n.fails = n.world.staleList(), n.file, [maxPods]int64{}
	for i := range n.known {
		n.known[i] = Cold
		if n.file[i].Level > Cold {
			n.known[i] = Unknown
		}
	}
	if n.world.rules.emptyBook {
		n.book = grants{}
	}
}

// fits returns whether a pod fits at a level beside the agent's book, and beside pods that wait for their start.
func (n *node) fits(p *pod, queued bool) func(Level) bool {
	return func(at Level) bool {
		var l load
		l.add(p.kind, at, 0)
		for _, other := range n.world.pods {
			v, _ := n.view.of(other)
			switch {
			case other == p:
			case n.book[other.id].Level > Cold:
				l.add(other.kind, n.book[other.id].Level, n.book[other.id].Memory)
			case queued && v.node == n.index && !v.deleting && !v.gone:
				l.add(other.kind, Hot, 0)
			}
		}
		return l.fits()
	}
}

// kubelet starts the container of a pod that is bound to the node, or ends that of one that is deleted.
func (n *node) kubelet(p *pod) {
	now := p.now()
	switch {
	case now.node != n.index || now.gone:
	case now.deleting && !n.ended[p.id]:
		n.ended[p.id], n.running[p.id], n.enforced[p.id] = true, false, Cold
		n.world.changed("kubelet %d: container of pod %d has ended", n.index, p.id)
	case now.deleting:
		n.world.update(p, "kubelet", func(v *version) { v.gone = true })
	case n.running[p.id]:
	case n.book[p.id].Level == Cold:
		n.preStart(p)
	default:
		if effect := n.act(p); effect == Idle || effect == Report {
			n.running[p.id] = true
			n.world.changed("kubelet %d: container of pod %d runs", n.index, p.id)
		}
	}
}

// preStart asks the agent for a grant.
func (n *node) preStart(p *pod) {
	seen, _ := n.view.of(p)
	if seen.node != n.index {
		return // the agent does not know the pod yet
	}
	record, ok := n.world.rules.start(seen.wanted, n.fits(p, false))
	switch {
	case ok:
		n.save(p, record)
	case seen.wanted.Level != Cold:
		n.world.events["start refused"]++
		n.world.checkLost(n, p)
		if p.instance && seen.reached != record {
			n.report(p, record)
		}
	}
}

func (n *node) save(p *pod, record Reached) {
	n.file[p.id], n.book[p.id] = record, record
	n.world.changed("agent %d: record of pod %d is %+v", n.index, p.id, record)
	if record.Refused {
		n.world.events["raise refused"]++
	}
}

func (n *node) report(p *pod, record Reached) {
	n.world.write(p, n.view[p.id], "agent", func(v *version) { v.reached = record })
}

func (n *node) agent(p *pod) { n.act(p) }

// act does the next thing for a pod with a record, and returns what it was.
func (n *node) act(p *pod) (done Effect) {
	if n.book[p.id].Level == Cold {
		return Idle
	}
	seen, known := n.view.of(p)
	step := n.world.rules.next(Instance{
		Wanted: seen.wanted, Reached: seen.reached, Record: n.book[p.id], Enforced: n.known[p.id], Kept: n.kept[p.id],
		CannotPark: n.fails[p.id] > 0 && n.fails[p.id] == seen.wanted.Seq,
	}, n.fits(p, !n.world.rules.ignoresQueued))
	switch step.Effect {
	case Enforce:
		n.enforce(p, seen, step.Level)
	case Save:
		n.save(p, step.Record)
	case Report:
		if known {
			n.report(p, step.Record)
		}
	}
	return step.Effect
}

// enforce makes a pod what it is to be. A process that is to be parked may not be able to: it keeps its memory then, and does not serve.
func (n *node) enforce(p *pod, seen version, level Level) {
	parks := level == Warm && n.book[p.id].Level > Warm
	switch {
	case parks && n.world.random.IntN(6) == 0:
		n.known[p.id], n.fails[p.id], n.kept[p.id] = Unknown, seen.wanted.Seq, kinds[p.kind].Memory
		n.world.events["cannot be parked"]++
	case parks:
		n.known[p.id], n.kept[p.id] = Warm, share.Bytes(n.world.random.Int64N(int64(kinds[p.kind].Memory)))
	default:
		n.known[p.id], n.kept[p.id] = level, n.book[p.id].Memory
	}
	if !n.ended[p.id] {
		n.enforced[p.id], n.parked[p.id] = level, n.kept[p.id]
	}
	n.world.changed("agent %d: pod %d is made %v, keeps %d", n.index, p.id, level, n.kept[p.id])
	n.world.events["made "+level.String()]++
}

// release removes the record of a pod that the kubelet no longer has.
func (n *node) release(p *pod) {
	if n.ended[p.id] && n.file[p.id].Level > Cold {
		n.file[p.id], n.book[p.id], n.known[p.id] = Reached{}, Reached{}, Cold
		n.world.changed("agent %d: record of pod %d is removed", n.index, p.id)
	}
}

type scheduler struct {
	world   *world
	view    view
	assumed [maxPods]int // node + 1 of pods that it has bound
}

func (s *scheduler) restart() {
	s.world.changed("scheduler restarts")
	s.view, s.assumed = s.world.list(), [maxPods]int{}
}

// schedule binds a pod to a node with room.
func (s *scheduler) schedule(p *pod) {
	if seen, ok := s.view.of(p); !ok || seen.node >= 0 || seen.gone || seen.deleting || s.assumed[p.id] > 0 {
		return
	}
	first := s.world.random.IntN(numNodes)
	for i := range numNodes {
		if at := (first + i) % numNodes; s.load(at, p).fits() {
			s.bind(p, at)
			return
		}
	}
}

// load returns what counts on a node together with a pod that is to be bound.
func (s *scheduler) load(node int, p *pod) *load {
	l := countedLoad(s.world, &s.view, node, nil)
	l.add(p.kind, Hot, 0)
	for _, other := range s.world.pods {
		if seen, _ := s.view.of(other); s.assumed[other.id] == node+1 && seen.node < 0 && !seen.gone {
			l.add(other.kind, Hot, 0)
		}
	}
	return l
}

// countedLoad returns what counts on a node in a view, without the pods that skip names.
func countedLoad(w *world, v *view, node int, skip func(*pod, version) bool) *load {
	l := &load{}
	for _, p := range w.pods {
		if seen, _ := v.of(p); seen.node == node && !seen.gone && (skip == nil || !skip(p, seen)) {
			l.add(p.kind, w.rules.counted(seen.wanted, seen.reached), w.rules.kept(seen.reached))
		}
	}
	return l
}

func (s *scheduler) bind(p *pod, node int) {
	if now := p.now(); now.node < 0 && !now.gone {
		s.assumed[p.id] = node + 1
		p.seenAtBinding = append([]int(nil), s.view...)
		s.world.update(p, "scheduler", func(v *version) { v.node = node })
	}
}

type controller struct {
	world  *world
	view   view
	drains map[replacement]map[int]bool // by pod and Seq: the gateways that have not stopped
	peers  map[int]bool                 // for the mutant that lists them once
}

func (c *controller) restart() {
	c.world.events["controller restarts"]++
	c.world.changed("controller restarts")
	c.view, c.drains, c.peers = c.world.staleList(), nil, nil
}

func (c *controller) act(p *pod) {
	switch at := c.world.random.IntN(40); {
	case at < 25:
		for range 3 {
			before := c.world.changes
			if c.review(p); c.world.changes > before {
				return
			}
			p = c.world.anyPod()
		}
	case at < 36:
		c.scale(p, []Level{Cold, Warm, Warm, Shared, Shared, Hot, Hot, Hot}[c.world.random.IntN(8)])
	case at < 39:
		c.makeRoom(p)
	case len(c.world.pods) < maxPods-4:
		c.world.create(true, replacement{})
	}
}

// scale wants another level of an instance.
func (c *controller) scale(p *pod, to Level) {
	seen, ok := c.view.of(p)
	if !ok || !p.instance || seen.gone || seen.deleting {
		return
	}
	if to == Cold && c.world.random.IntN(3) > 0 {
		return
	}
	if wanted, ok := c.world.rules.change(seen.wanted, seen.reached, to); ok {
		c.write(p, wanted)
	}
}

func (c *controller) write(p *pod, wanted Wanted) {
	change := func(v *version) { v.wanted = wanted }
	if c.world.rules.blindWrites {
		c.world.update(p, "controller", change)
		return
	}
	c.world.write(p, c.view[p.id], "controller", change)
}

// review does what Review returns for an instance.
func (c *controller) review(p *pod) {
	seen, ok := c.view.of(p)
	if !ok || !p.instance || seen.gone || seen.deleting {
		return
	}
	answers, asked := c.drains[c.drainKey(p, seen)]
	task := c.world.rules.review(seen.wanted, seen.reached, c.isReplaced(p, seen), asked && len(answers) == 0)
	switch task.Action {
	case Drain:
		c.drain(p, seen)
	case Write:
		if task.Wanted.Seq > seen.wanted.Seq && task.Wanted.Level > Cold && !seen.reached.CannotPark(seen.wanted) {
			c.world.reverts[replacement{p.id, seen.wanted.Seq}] = true
		}
		c.write(p, task.Wanted)
	case Replace:
		c.world.events["replaced"]++
		c.world.create(true, replacement{p.id, seen.wanted.Seq})
		if len(c.world.pods) == maxPods { // the world is full: that instance is left
			c.write(p, Wanted{Seq: seen.wanted.Seq + 1, Level: Cold})
		}
	case Delete:
		c.world.update(p, "controller", func(v *version) { v.deleting = true })
	}
}

func (c *controller) isReplaced(p *pod, seen version) bool {
	for _, other := range c.world.pods {
		if _, ok := c.view.of(other); ok && other.replaces == (replacement{p.id, seen.wanted.Seq}) {
			return true
		}
	}
	return false
}

func (c *controller) drainKey(p *pod, seen version) replacement {
	if c.world.rules.keepsAnswers {
		return replacement{pod: p.id}
	}
	return replacement{p.id, seen.wanted.Seq}
}

// drain lists the gateways, and then asks them one after the other.
func (c *controller) drain(p *pod, seen version) {
	key := c.drainKey(p, seen)
	if c.drains == nil {
		c.drains = map[replacement]map[int]bool{}
	}
	if c.drains[key] == nil {
		c.drains[key] = c.listGateways()
		c.world.changed("controller: drains pod %d of %d gateways", p.id, len(c.drains[key]))
		return
	}
	for _, g := range c.world.gateways {
		if !c.drains[key][g.incarnation] {
			continue
		}
		if has, _ := g.view.of(p); g.listed && c.world.rules.stopped(has.wanted, seen.wanted, g.inFlight[p.id]) {
			delete(c.drains[key], g.incarnation)
			c.world.changed("gateway %d has stopped for pod %d at %+v", g.incarnation, p.id, seen.wanted)
		}
		return
	}
	clear(c.drains[key]) // those that are left are dead
	c.world.changed("controller: pod %d is drained", p.id)
}

func (c *controller) listGateways() map[int]bool {
	if c.world.rules.oldGateways && c.peers != nil {
		return cloneSet(c.peers)
	}
	c.peers = map[int]bool{}
	for _, g := range c.world.gateways {
		if !g.unregistered {
			c.peers[g.incarnation] = true
		}
	}
	return cloneSet(c.peers)
}

func cloneSet(s map[int]bool) map[int]bool {
	clone := map[int]bool{}
	for k := range s {
		clone[k] = true
	}
	return clone
}

// makeRoom gives up one of the victims for a pod without a node, if the victims suffice.
func (c *controller) makeRoom(p *pod) {
	if seen, ok := c.view.of(p); !ok || seen.node >= 0 || seen.gone || seen.deleting || seen.wanted.Level == Cold {
		return
	}
	var from []Candidate
	for _, other := range c.world.pods {
		if v, _ := c.view.of(other); other.instance && v.node >= 0 && !v.gone && v.wanted.Level == Shared && v.reached.Level == Shared {
			from = append(from, Candidate{string(rune('a' + other.id)), string(rune('0' + v.node)), time.Duration(other.id * 7 % 5)})
		}
	}
	victims := Victims(from, func(place string, without []Candidate) bool {
		l := countedLoad(c.world, &c.view, int(place[0]-'0'), func(q *pod, v version) bool {
			for _, victim := range without {
				if int(victim.ID[0]-'a') == q.id {
					return true
				}
			}
			return v.wanted.Level == Cold || v.deleting // gone soon
		})
		l.add(p.kind, Hot, 0)
		return l.fits()
	})
	if len(victims) > 0 && !c.world.rules.keepsShared {
		c.world.events["victim"]++
		c.scaleVictim(c.world.pods[victims[0].ID[0]-'a'])
	}
}

func (c *controller) scaleVictim(p *pod) {
	seen, _ := c.view.of(p)
	if wanted, ok := c.world.rules.change(seen.wanted, seen.reached, Cold); ok {
		c.write(p, wanted)
	}
}

// gateway sends requests. Each incarnation registers under a name of its own.
type gateway struct {
	world        *world
	incarnation  int
	unregistered bool
	listed       bool
	view         view
	inFlight     [maxPods]int
}

func (g *gateway) restart() {
	g.world.changed("gateway %d restarts", g.incarnation)
	*g = gateway{world: g.world, incarnation: g.incarnation + numGateways, unregistered: g.world.rules.listsFirst}
}

func (g *gateway) act(p *pod) {
	switch at := g.world.random.IntN(4); {
	case !g.listed:
		g.listed, g.view = true, g.world.list()
		if g.world.rules.staleGateway {
			g.view = g.world.staleList()
		}
		g.world.changed("gateway %d has listed the pods", g.incarnation)
	case g.unregistered && at == 0:
		g.unregistered = false
	case at < 2:
		g.send(p)
	default:
		g.finish(p)
	}
}

func (g *gateway) send(p *pod) {
	seen, ok := g.view.of(p)
	if !ok || seen.gone || !p.instance || !g.world.rules.maySend(seen.wanted, seen.reached) || g.inFlight[p.id] > 1 {
		return
	}
	g.inFlight[p.id]++
	g.world.events["request"]++
	g.world.changed("gateway %d: request to pod %d", g.incarnation, p.id)
}

func (g *gateway) finish(p *pod) {
	if g.inFlight[p.id] > 0 {
		g.inFlight[p.id]--
		g.world.changed("gateway %d: request to pod %d ends", g.incarnation, p.id)
	}
}
