package residency

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The world is small, so that its pods are often in each other's way: two nodes with one slice each.
const (
	numNodes    = 2
	numGateways = 2
	maxPods     = 16
	sliceMemory = 8
)

// kinds are the shares of the pods. Memory is in bytes of a slice that has sliceMemory.
var kinds = []share.Share{
	{SMRequest: 500, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 3},
	{SMRequest: 500, SMLimit: 500, QuotaRequest: 500, QuotaLimit: 500, Memory: 3},
	{SMRequest: 700, SMLimit: 700, QuotaRequest: 400, QuotaLimit: 400, Memory: 2},
}

// load is a set of pods on a slice: how many of each kind request SM-time, and the memory of all.
type load struct {
	requests [3]int
	memory   share.Bytes
}

// add adds a pod at a level; parked is what it keeps if it is Warm.
func (l *load) add(kind int, at Level, parked share.Bytes) {
	charge := at.Charge(kinds[kind], parked)
	if charge.SMRequest > 0 {
		l.requests[kind]++
	}
	l.memory += charge.Memory
}

func (l *load) fits() bool {
	return l.memory <= sliceMemory && requestsFit()[l.requests]
}

// requestsFit returns the sets of requests that the slot model admits on one slice.
var requestsFit = sync.OnceValue(func() map[[3]int]bool {
	fit, solver := map[[3]int]bool{}, slot.NewSolver()
	for a := range maxPods {
		for b := range maxPods {
			for c := range maxPods {
				var items []slot.Item
				for kind, n := range []int{a, b, c} {
					for range n {
						items = append(items, slot.Item{SM: kinds[kind].SMRequest, Quota: kinds[kind].QuotaRequest})
					}
				}
				if solver.Fits(items, 50) {
					fit[[3]int{a, b, c}] = true
				}
			}
		}
	}
	return fit
})

// version is one version of a pod in the API server; its index in the pod's history is the resourceVersion.
type version struct {
	node     int // -1: not bound
	wanted   Wanted
	reached  Reached
	deleting bool
	gone     bool
}

// replacement names what a pod replaces: an instance that was refused a level.
type replacement struct {
	pod int
	seq int64
}

func (v version) String() string {
	state := ""
	switch {
	case v.gone:
		state = ", gone"
	case v.deleting:
		state = ", deleting"
	}
	return fmt.Sprintf("on node %d, wanted %+v, reached %+v%s", v.node, v.wanted, v.reached, state)
}

type pod struct {
	id, kind int
	instance bool // of the controller, not a user's
	replaces replacement
	history  []version
	// seenAtBinding has the versions of all pods that the scheduler had seen when it bound this one.
	seenAtBinding []int
}

func (p *pod) now() version { return p.history[len(p.history)-1] }

// view is what a participant has seen: the version of each pod, or -1.
type view []int

// of returns the version of a pod that the participant has seen; false if none.
func (v *view) of(p *pod) (version, bool) {
	v.grow(p.id)
	if (*v)[p.id] < 0 {
		return version{node: -1}, false
	}
	return p.history[(*v)[p.id]], true
}

func (v *view) grow(id int) {
	for len(*v) <= id {
		*v = append(*v, -1)
	}
}

// advance shows the participant the next version of a pod, if there is one.
func (v *view) advance(p *pod) {
	v.grow(p.id)
	(*v)[p.id] = min((*v)[p.id]+1, len(p.history)-1)
}

// world is the API server with its pods, the participants, and what really runs.
type world struct {
	rules          rules
	random         *rand.Rand
	crashes        int  // of 1000 steps
	wholePods      bool // a write fails if the pod has changed at all
	lag            int  // the greatest number of pods that advance in a view in one step
	pods           []*pod
	nodes          [numNodes]*node
	scheduler      scheduler
	controls       [2]controller // the leader, and one that believes it still is
	gateways       [numGateways]*gateway
	late           []func()             // writes that are under way
	reverts        map[replacement]bool // instances that the controller returned to the level that they had
	events         map[string]int       // how often something happened, to see that the test is not idle
	violation      string               // the first one
	calm           bool                 // nothing fails, nobody wants anything new
	changes        int                  // how often anything changed; those that check and showAll have seen
	checked, shown int
	trace          func(string, ...any)
}

func newWorld(seed uint64, r rules) *world {
	w := &world{
		rules: r, random: rand.New(rand.NewPCG(seed, 0)), reverts: map[replacement]bool{}, events: map[string]int{},
		trace: func(string, ...any) {},
	}
	w.wholePods = w.random.IntN(2) == 0
	w.crashes, w.lag = []int{0, 4, 15, 40}[w.random.IntN(4)], []int{1, 4, 12}[w.random.IntN(3)]
	for n := range w.nodes {
		w.nodes[n] = &node{world: w, index: n}
	}
	w.scheduler = scheduler{world: w}
	for i := range w.controls {
		w.controls[i] = controller{world: w}
	}
	for g := range w.gateways {
		w.gateways[g] = &gateway{world: w, incarnation: g}
	}
	for range 4 {
		w.create(true, replacement{})
	}
	return w
}

// create adds a pod, unless there is one with the same name.
func (w *world) create(instance bool, of replacement) {
	for _, p := range w.pods {
		if of.seq > 0 && p.replaces == of {
			return
		}
	}
	if len(w.pods) == maxPods {
		return
	}
	p := &pod{id: len(w.pods), kind: w.random.IntN(len(kinds)), instance: instance, replaces: of}
	first := version{node: -1, wanted: Fixed}
	if of.seq > 0 {
		p.kind = w.pods[of.pod].kind
	}
	if instance {
		first.wanted = Created([]Level{Hot, Hot, Hot, Shared}[w.random.IntN(4)])
	}
	p.history = []version{first}
	w.pods = append(w.pods, p)
	w.changed("pod %d of kind %d is created: %+v", p.id, p.kind, first.wanted)
}

// write changes a pod, now or later, if it is still as it was at a resourceVersion: in some worlds altogether, in others in its residency.
func (w *world) write(p *pod, resourceVersion int, who string, change func(*version)) {
	apply := func() {
		seen, now := p.history[resourceVersion], p.now()
		if seen.wanted != now.wanted || seen.reached != now.reached || w.wholePods && resourceVersion != len(p.history)-1 {
			w.events["conflict"]++
			w.trace("%s: conflict on pod %d", who, p.id)
			return
		}
		w.update(p, who, change)
	}
	if !w.calm && w.random.IntN(4) == 0 {
		w.events["late write"]++
		w.late = append(w.late, apply)
		return
	}
	apply()
}

// update changes a pod whatever its version is.
func (w *world) update(p *pod, who string, change func(*version)) {
	next := p.now()
	if next.gone {
		return
	}
	change(&next)
	next.gone = next.gone || next.deleting && next.node < 0
	if next == p.now() {
		return
	}
	p.history = append(p.history, next)
	w.changed("%s: pod %d is %v", who, p.id, next)
}

func (w *world) changed(format string, args ...any) {
	w.changes++
	w.trace(format, args...)
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.trace("VIOLATION: %s", w.violation)
	}
}

// step lets one participant do one thing, or one of them crash.
func (w *world) step() {
	if w.random.IntN(1000) < w.crashes {
		w.crash()
		return
	}
	switch at := w.random.IntN(96); {
	case at < 30:
		v := w.anyView()
		for range 1 + w.random.IntN(w.lag) {
			v.advance(w.anyPod())
		}
	case at < 35 && len(w.late) > 0:
		i := w.random.IntN(len(w.late))
		write := w.late[i]
		w.late = append(w.late[:i], w.late[i+1:]...)
		if w.random.IntN(4) > 0 { // else it is lost
			write()
		}
	case at < 58:
		p := w.anyPod()
		for range 3 { // most pods of the world have a node
			if p.now().node < 0 || p.now().gone && !w.hasRecord(p) {
				p = w.anyPod()
			}
		}
		if n := p.now().node; n >= 0 {
			[]func(*pod){w.nodes[n].kubelet, w.nodes[n].agent, w.nodes[n].agent, w.nodes[n].release}[w.random.IntN(4)](p)
		}
	case at < 65:
		w.scheduler.schedule(w.anyPod())
	case at < 82:
		w.controls[max(0, w.random.IntN(6)-4)].act(w.anyPod())
	case at < 94:
		w.gateways[w.random.IntN(numGateways)].act(w.anyPod())
	default:
		w.user(w.anyPod())
	}
}

func (w *world) hasRecord(p *pod) bool {
	return p.now().node >= 0 && w.nodes[p.now().node].file[p.id].Level > Cold
}

func (w *world) anyPod() *pod { return w.pods[w.random.IntN(len(w.pods))] }

func (w *world) views() [5 + numGateways]*view {
	return [...]*view{
		&w.scheduler.view, &w.controls[0].view, &w.controls[1].view, &w.nodes[0].view, &w.nodes[1].view, &w.gateways[0].view, &w.gateways[1].view,
	}
}

func (w *world) anyView() *view {
	views := w.views()
	i := w.random.IntN(len(views))
	if first := len(views) - numGateways; i >= first && !w.gateways[i-first].listed {
		return &w.scheduler.view
	}
	return views[i]
}

// user creates and deletes pods that are not instances.
func (w *world) user(p *pod) {
	switch {
	case p.instance && len(w.pods) < maxPods-4 && w.random.IntN(4) == 0:
		w.create(false, replacement{})
	case !p.instance && w.random.IntN(4) == 0:
		w.update(p, "user", func(v *version) { v.deleting = true })
	}
}

func (w *world) crash() {
	switch i := w.random.IntN(4 + numGateways); i {
	case 0, 1:
		w.nodes[i].restart()
	case 2:
		w.scheduler.restart()
	case 3:
		w.controls[w.random.IntN(2)].restart()
	default:
		w.gateways[i-4].restart()
	}
}

// list returns a consistent list of the pods.
func (w *world) list() view {
	v := make(view, len(w.pods))
	for i, p := range w.pods {
		v[i] = len(p.history) - 1
	}
	return v
}

// staleList returns a list from a cache that may be far behind.
func (w *world) staleList() view {
	v := w.list()
	for i := range v {
		v[i] = w.random.IntN(v[i]+2) - 1
	}
	return v
}

// settle lets everything go on without faults until nothing changes any more.
func (w *world) settle() {
	const maxRounds = 80
	w.calm, w.shown = true, -1
	for range maxRounds {
		before := w.changes
		w.round()
		if w.changes == before {
			w.checkSettled()
			return
		}
	}
	w.fail("stuck: no end after %d rounds without faults", maxRounds)
}

func (w *world) round() {
	for _, write := range w.late {
		write()
	}
	w.late = nil
	for _, do := range []func(*pod){
		w.nodes[0].kubelet, w.nodes[0].agent, w.nodes[0].release, w.nodes[1].kubelet, w.nodes[1].agent, w.nodes[1].release,
		w.gateways[0].finish, w.gateways[1].finish, w.controls[0].review, w.controls[0].makeRoom, w.scheduler.schedule,
	} {
		for _, p := range w.pods {
			w.showAll()
			do(p)
			w.check()
		}
	}
}

// showAll shows all participants the present pods.
func (w *world) showAll() {
	if w.shown == w.changes {
		return
	}
	w.shown = w.changes
	now := w.list()
	for _, g := range w.gateways {
		g.listed = true
	}
	for _, v := range w.views() {
		*v = append((*v)[:0], now...)
	}
}
