package residency

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// rules are what an agent does with a Node, of which mutants break one each.
type rules struct {
	steps      func(*Node) []Step
	failed     func(*Node, time.Duration, string)
	restored   func(*Node)
	actsFirst  bool // before it has saved
	leaseFirst bool // gives leases before it has saved
}

func rulesOfPackage() rules {
	return rules{
		steps:    (*Node).Steps,
		failed:   func(n *Node, now time.Duration, name string) { _, _, _ = n.Failed(now, name) },
		restored: func(*Node) {},
	}
}

// server is the process of a function. Its memory is taken from the moment at which it is told to load until it has given all back, or ends.
type server struct {
	name     string
	life     int    // how often it was started
	slice    string // of which it holds memory; empty: none
	op       Move   // what it has been told and not done; empty: nothing
	hangs    bool   // it does not go on with that
	loaded   bool
	inFlight int
}

// event is what a server has to tell the agent.
type event struct {
	name string
	life int
	kind string // loaded, failed, evicted or ended
}

// agent is the process that has the node. It does one thing at a time, and may end between any two.
type agent struct {
	node   *Node
	leases []Lease
	plan   []func()       // what it has yet to do of one round
	life   map[string]int // the starts of servers that it knows of
}

// world is two slices, the servers of eight functions with three times their memory, one agent and one gateway.
type world struct {
	rules   rules
	random  *rand.Rand
	now     time.Duration
	agent   agent
	saved   []byte         // the last snapshot
	known   map[string]int // agent.life, saved with it
	servers []*server
	events  []event

	wants  map[string]Want
	leases map[string]Lease // by slice, as the gateway knows them
	begun  map[string]int   // requests of the turn on a slice
	served map[string]int   // requests by function
	counts map[string]int   // how often something happened, to see that the test is not idle

	calm      bool // nothing fails
	violation string
}

const (
	worldSlice  = share.Bytes(10)
	worldSlices = 2
)

var worldMemory = []share.Bytes{10, 10, 10, 10, 8, 6, 4, 2} // three times that of the slices

func newWorld(seed uint64, r rules) *world {
	w := &world{
		rules: r, random: rand.New(rand.NewPCG(seed, 46)), wants: map[string]Want{}, leases: map[string]Lease{}, begun: map[string]int{},
		served: map[string]int{}, counts: map[string]int{}, known: map[string]int{},
	}
	n, err := New(w.policy())
	if err != nil {
		panic(err)
	}
	for i := range worldSlices {
		if err := n.AddSlice(0, pipeline.Slice{ID: fmt.Sprint("s", i), Kind: pipeline.Kind{Name: "1g", Compute: 1, Memory: worldSlice}}); err != nil {
			panic(err)
		}
	}
	for i, memory := range worldMemory {
		f := Function{Name: fmt.Sprint("f", i), Tenant: fmt.Sprint("t", i%2), Memory: memory, Times: map[string]time.Duration{"1g": 10 * ms}, LoadWarm: 50 * ms, LoadCold: 200 * ms}
		if i%3 == 0 { // its process cannot move
			f.Slice = fmt.Sprint("s", i%worldSlices)
		}
		if err := n.Register(f); err != nil {
			panic(err)
		}
		w.servers = append(w.servers, &server{name: f.Name})
	}
	w.agent = agent{node: n, life: map[string]int{}}
	w.saved = n.Snapshot()
	return w
}

func (w *world) policy() Policy {
	return Policy{Host: 60, Turn: Turn{Requests: 3, For: 100 * ms}, ColdAfter: time.Second}
}

func (w *world) server(name string) *server {
	return w.servers[slices.IndexFunc(w.servers, func(s *server) bool { return s.name == name })]
}

func (w *world) any() *server { return w.servers[w.random.IntN(len(w.servers))] }

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// step lets one thing happen.
func (w *world) step() {
	w.now += time.Duration(w.random.IntN(6)) * ms
	switch choice := w.random.IntN(200); {
	case choice < 60:
		w.agentStep()
	case choice < 100:
		w.deliver()
	case choice < 130:
		w.goOn(w.any())
	case choice < 160:
		w.request(w.any())
	case choice < 174:
		w.answer(w.any())
	case choice < 186 && !w.calm:
		w.want(w.any())
	case choice < 196:
		w.giveUp(w.any())
	case choice < 197 && !w.calm:
		w.crash()
	case choice < 199 && !w.calm:
		w.kill(w.any())
	}
}

func (w *world) want(s *server) {
	w.wants[s.name] = Want{Function: s.name, Deadline: w.now + time.Duration(w.random.IntN(1000))*ms, Requests: w.random.IntN(10)}
}

// agentStep lets the agent do the next thing of its round: it decides, saves, acts, and gives leases.
func (w *world) agentStep() {
	a := &w.agent
	if len(a.plan) > 0 {
		do := a.plan[0]
		a.plan = a.plan[1:]
		do()
		return
	}
	w.endTurns()
	for _, s := range w.servers {
		if err := a.node.SetWant(w.now, w.wantOf(s)); err != nil {
			w.fail("want: %v", err)
		}
	}
	d := a.node.Dispatch(w.now)
	if w.random.IntN(4) == 0 {
		a.node.Review(w.now)
	}
	steps := w.rules.steps(a.node)
	save := func() { w.saved, w.known = a.node.Snapshot(), maps.Clone(a.life) }
	leases := a.node.Leases(w.now)
	if len(d.Starts) == 0 && len(steps) == 0 && slices.Equal(leases, a.leases) {
		return
	}
	a.leases = leases
	lease := func() { w.lease(leases) }
	if !w.rules.actsFirst && !w.rules.leaseFirst {
		a.plan = append(a.plan, save)
	}
	if w.rules.leaseFirst {
		a.plan = append(a.plan, lease, save)
	}
	for _, s := range steps {
		life := a.life[s.Function]
		a.plan = append(a.plan, func() { w.act(s, life) })
	}
	if w.rules.actsFirst {
		a.plan = append(a.plan, save)
	}
	a.plan = append(a.plan, lease)
}

func (w *world) wantOf(s *server) Want {
	want := w.wants[s.name]
	want.Function = s.name
	return want
}

// lease tells the gateway which turns there are.
func (w *world) lease(leases []Lease) {
	before := w.leases
	w.leases = map[string]Lease{}
	for _, l := range leases {
		if s := w.agent.node.findSlice(l.Slice); s.running == nil || s.turn != l.Turn {
			continue // its process has ended since
		}
		old, had := before[l.Slice]
		if !had || old.Turn != l.Turn || old.Requests == 0 {
			w.begun[l.Slice] = 0
		}
		if l.Requests > 0 {
			w.counts["bound"]++
		}
		w.leases[l.Slice] = l
	}
}

// endTurns ends the turns that are over, or not used.
func (w *world) endTurns() {
	for _, id := range []string{"s0", "s1"} {
		l, ok := w.leases[id]
		if !ok {
			continue
		}
		s := w.server(l.Function)
		if s.inFlight == 0 && (w.wants[s.name].Requests == 0 || !w.mayBegin(l)) {
			w.agent.node.FinishTurn(w.now, l.Turn)
			delete(w.leases, id)
		}
	}
}

func (w *world) mayBegin(l Lease) bool {
	return w.begun[l.Slice] == 0 || w.now < l.Until && (l.Requests == 0 || w.begun[l.Slice] < l.Requests)
}

// act tells a server what to do, by the start that the agent knew when it decided.
func (w *world) act(step Step, life int) {
	s := w.server(step.Function)
	if s.life != life { // there is no such process any more
		kind := map[Move]string{Load: "failed", Evict: "evicted"}[step.Move]
		w.events = append(w.events, event{s.name, life, kind})
		return
	}
	w.counts[string(step.Move)]++
	if s.inFlight > 0 {
		w.fail("requests: %s is told to %s with %d requests", s.name, step.Move, s.inFlight)
	}
	if step.Move == Load {
		if s.slice != "" {
			w.fail("memory: %s is loaded to %s, and holds memory of %s", s.name, step.Slice, s.slice)
		}
		s.slice = step.Slice
	}
	s.op, s.loaded, s.hangs = step.Move, false, !w.calm && w.random.IntN(6) == 0
}

// goOn lets a server do what it was told, or fail.
func (w *world) goOn(s *server) {
	if s.op == "" || s.hangs {
		return
	}
	op, fails := s.op, !w.calm && w.random.IntN(6) == 0
	switch {
	case op == Load && fails: // what it has taken by then it keeps
		w.counts["failed"]++
		s.op = ""
		w.events = append(w.events, event{s.name, s.life, "failed"})
	case op == Load:
		s.op, s.loaded = "", true
		w.events = append(w.events, event{s.name, s.life, "loaded"})
	case fails: // the agent ends it
		w.kill(s)
	default:
		s.op, s.slice = "", ""
		w.events = append(w.events, event{s.name, s.life, "evicted"})
	}
}

// giveUp lets the agent lose patience with a server that hangs.
func (w *world) giveUp(s *server) {
	switch {
	case !s.hangs || w.agent.life[s.name] != s.life:
	case s.op == Load:
		w.counts["hung"]++
		w.rules.failed(w.agent.node, w.now, s.name)
	case s.op == Evict:
		w.kill(s)
	}
}

func (w *world) kill(s *server) {
	w.counts["killed"]++
	want := w.wants[s.name]
	want.Function, want.Requests = s.name, want.Requests+s.inFlight // the gateway sends them again
	w.wants[s.name] = want
	*s = server{name: s.name, life: s.life + 1}
	w.events = append(w.events, event{s.name, s.life, "ended"})
}

// deliver tells the agent what has happened first.
func (w *world) deliver() {
	if len(w.events) == 0 {
		return
	}
	e := w.events[0]
	w.events = w.events[1:]
	n := w.agent.node
	if e.kind == "ended" {
		w.agent.life[e.name] = e.life
		n.Ended(w.now, e.name)
		for id, l := range w.leases {
			if l.Function == e.name {
				delete(w.leases, id)
			}
		}
		return
	}
	if e.life != w.agent.life[e.name] {
		return
	}
	switch e.kind {
	case "loaded":
		_ = n.Loaded(w.now, e.name) // it may be evicted by now, as the agent did not wait
	case "failed":
		w.rules.failed(n, w.now, e.name)
	case "evicted":
		_ = n.Evicted(w.now, e.name)
	}
}

// crash lets another agent go on with what was saved. Servers and gateway do not notice.
func (w *world) crash() {
	w.counts["crash"]++
	n, err := Restore(w.policy(), 0, w.saved)
	if err != nil {
		w.fail("restore: %v: %s", err, w.saved)
		return
	}
	for _, s := range n.slices {
		if s.running != nil {
			w.counts["turn restored"]++
		}
	}
	w.rules.restored(n)
	w.agent, w.events = agent{node: n, life: maps.Clone(w.known)}, nil
	for _, s := range w.servers {
		if w.agent.life[s.name] != s.life {
			w.events = append(w.events, event{s.name, s.life, "ended"})
		}
	}
}

// request lets the gateway send a request of a function if it has a lease.
func (w *world) request(s *server) {
	for id, l := range w.leases {
		want := w.wants[s.name]
		if l.Function != s.name || want.Requests == 0 || !w.mayBegin(l) || w.agent.life[s.name] != s.life {
			continue
		}
		if !s.loaded || s.slice != id {
			w.fail("requests: one is sent to %s, which is not loaded on %s", s.name, id)
		}
		want.Requests--
		w.wants[s.name] = want
		w.begun[id]++
		s.inFlight++
		return
	}
}

func (w *world) answer(s *server) {
	if s.inFlight > 0 {
		s.inFlight--
		w.served[s.name]++
	}
}

// check holds the world to what the package promises.
func (w *world) check() {
	for _, id := range []string{"s0", "s1"} {
		used, busy := share.Bytes(0), 0
		for i, s := range w.servers {
			if s.slice != id {
				continue
			}
			used += worldMemory[i]
			if s.inFlight > 0 {
				busy++
			}
		}
		if used > worldSlice {
			w.fail("memory: servers hold %d of the %d bytes of %s", used, worldSlice, id)
		}
		if busy > 1 {
			w.fail("requests: %d functions have requests on %s at once", busy, id)
		}
	}
}

// settle lets nothing fail any more, and expects each function to answer a request.
func (w *world) settle() {
	w.calm, w.served, w.wants = true, map[string]int{}, map[string]Want{}
	for _, s := range w.servers {
		s.hangs = s.hangs && s.op != ""
		w.wants[s.name] = Want{Function: s.name, Deadline: w.now + time.Hour, Requests: 1}
	}
	for range 20_000 {
		w.step()
		w.check()
		if w.violation != "" {
			return
		}
		lost := false
		for _, s := range w.servers {
			lost = lost || w.served[s.name] == 0
		}
		if !lost {
			return
		}
		w.now += 5 * ms
	}
	for _, s := range w.servers {
		if w.served[s.name] == 0 {
			w.fail("lost: %s answers no request: %+v", s.name, *s)
		}
	}
}
