package swap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/pipeline/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	ms            = time.Millisecond
	memoryOfSlice = share.Bytes(10) // memory of each of the slices s0 and s1
)

// sizes are the memory of f0, f1, ...: three times that of the slices.
var sizes = []share.Bytes{10, 10, 10, 10, 10, 6, 4}

// machine is the servers of the functions, whose moves fail and hang at random.
type machine struct {
	t      *testing.T
	random *rand.Rand
	faults bool

	mu       sync.Mutex        // guards what follows
	on       map[string]string // the slice of which a function holds memory
	loaded   map[string]bool
	life     map[string]int  // how often its process has ended
	dead     map[string]bool // since it has last been loaded
	inFlight map[string]int
	loads    int
	failed   int
	saved    []byte
	end      chan struct{}
}

// size returns the memory of a function.
func size(function string) (m share.Bytes) {
	var i int
	_, _ = fmt.Sscanf(function, "f%d", &i)
	return sizes[i]
}

// fate says how a move ends: an error, or that it hangs.
func (m *machine) fate() (fails, hangs bool) {
	roll := m.random.IntN(10)
	return m.faults && roll == 0, m.faults && roll == 1
}

func (m *machine) Load(ctx context.Context, function, slice string) error {
	m.mu.Lock()
	m.take(function, slice)
	m.dead[function] = false
	life := m.life[function]
	m.loads++
	fails, hangs := m.fate()
	if fails || hangs {
		m.failed++
	}
	m.mu.Unlock()
	if hangs {
		<-m.end // not even its context ends it
		return errors.New("the test is over")
	}
	time.Sleep(50 * ms)
	if fails {
		return errors.New("no such file")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life[function] != life {
		return errors.New("the process has ended")
	}
	m.loaded[function] = true
	return nil
}

// take counts the memory of a function on a slice. The mutex is held.
func (m *machine) take(function, on string) {
	if n, err := residency.Restore(policy, 0, m.saved); err != nil || !slices.Contains(n.Steps(), residency.Step{Move: residency.Evict, Function: function, Slice: on}) {
		m.t.Errorf("%s is loaded, and that is not saved: %v", function, err)
	}
	if other := m.on[function]; other != "" {
		m.t.Errorf("%s is loaded to %s and still on %s", function, on, other)
	}
	m.on[function] = on
	sum := share.Bytes(0)
	for f, s := range m.on {
		if s == on {
			sum += size(f)
		}
	}
	if sum > memoryOfSlice {
		m.t.Errorf("%d of the %d bytes of %s are used: %v", sum, memoryOfSlice, on, m.on)
	}
}

func (m *machine) Evict(ctx context.Context, function, slice string) error {
	m.mu.Lock()
	if n := m.inFlight[function]; n > 0 {
		m.t.Errorf("%s is evicted with %d requests", function, n)
	}
	m.loaded[function] = false
	life, dead := m.life[function], m.dead[function]
	fails, hangs := m.fate()
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(20 * ms)
	if fails {
		return errors.New("no answer")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !dead && m.life[function] == life { // the memory that is freed is not that of a later process
		delete(m.on, function)
	}
	return nil
}

// kill ends the process of a function, if it is loaded.
func (m *machine) kill(c *client, function string) {
	m.mu.Lock()
	if !m.loaded[function] {
		m.mu.Unlock()
		return
	}
	delete(m.on, function)
	m.loaded[function], m.dead[function] = false, true
	m.life[function]++
	m.mu.Unlock()
	c.swap.Ended(function)
}

// client is what sends the requests of all functions, one after another in each turn.
type client struct {
	*machine
	swap   *Swap
	wants  map[string][]time.Time // the deadlines of the requests that wait
	leases map[string]residency.Lease
	turns  map[uint64]bool // in which requests are sent, or were
	served map[string]int
	late   int
	left   bool // sends no more
}

// grant takes over the leases, and sends requests in those that are new.
func (c *client) grant(leases []residency.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases = map[string]residency.Lease{}
	for _, l := range leases {
		c.leases[l.Slice] = l
		if !c.turns[l.Turn] {
			c.turns[l.Turn] = true
			go c.serve(l)
		}
	}
}

// serve uses a turn until it is over, or nothing waits.
func (c *client) serve(l residency.Lease) {
	defer c.swap.Finish(l.Turn)
	bounded := 0
	for n := 0; ; n++ {
		c.mu.Lock()
		now, has := c.leases[l.Slice]
		if has && now.Requests > 0 {
			bounded++
		}
		over := n > 0 && (c.swap.Now() >= now.Until || now.Requests > 0 && bounded > now.Requests)
		if !has || now.Turn != l.Turn || over || c.left || c.dead[l.Function] || len(c.wants[l.Function]) == 0 {
			c.mu.Unlock()
			return
		}
		if !c.loaded[l.Function] || c.on[l.Function] != l.Slice {
			c.t.Errorf("a request of %s is sent to %s, and it is on %q", l.Function, l.Slice, c.on[l.Function])
		}
		due := c.wants[l.Function][0]
		c.wants[l.Function] = c.wants[l.Function][1:]
		c.inFlight[l.Function]++
		c.mu.Unlock()
		time.Sleep(5 * ms)
		c.mu.Lock()
		c.inFlight[l.Function]--
		c.served[l.Function]++
		if time.Now().After(due) {
			c.late++
		}
		c.mu.Unlock()
		c.tell(l.Function)
	}
}

// tell says what waits for a function.
func (c *client) tell(function string) {
	c.mu.Lock()
	n, due := len(c.wants[function]), time.Time{}
	if n > 0 {
		due = c.wants[function][0]
	} else {
		due = time.Now()
	}
	c.mu.Unlock()
	c.swap.Want(function, due, n)
}

// leave ends all turns.
func (c *client) leave() {
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
	time.Sleep(100 * ms)
}

func (c *client) request(function string, within time.Duration) {
	c.mu.Lock()
	c.wants[function] = append(c.wants[function], time.Now().Add(within))
	c.mu.Unlock()
	c.tell(function)
}

func newNode(t *testing.T) *residency.Node {
	t.Helper()
	n, err := residency.New(policy)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := n.AddSlice(0, pipeline.Slice{ID: fmt.Sprint("s", i), Kind: pipeline.Kind{Name: "1g", Compute: 1, Memory: memoryOfSlice}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, memory := range sizes {
		f := residency.Function{Name: fmt.Sprint("f", i), Memory: memory, Times: map[string]time.Duration{"1g": 5 * ms}, LoadWarm: 60 * ms, LoadCold: 60 * ms}
		if err := n.Register(f); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

var policy = residency.Policy{Host: 60, Turn: residency.Turn{Requests: 20, For: 200 * ms}}

// start runs a node with its machine and client until stop is called.
func start(t *testing.T, m *machine, n *residency.Node) (c *client, stop func()) {
	c = &client{machine: m, wants: map[string][]time.Time{}, leases: map[string]residency.Lease{}, turns: map[uint64]bool{}, served: map[string]int{}}
	c.swap = New(Config{
		Node: n, Mover: m, Log: slog.New(slog.DiscardHandler), LoadLimit: time.Second, EvictLimit: time.Second, Grant: c.grant,
		Save: func(snapshot []byte) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.faults && m.random.IntN(10) == 0 {
				return errors.New("no space")
			}
			m.saved = snapshot
			return nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.swap.Run(ctx) }()
	return c, func() { cancel(); <-done }
}

func newMachine(t *testing.T, faults bool) *machine {
	return &machine{
		t: t, random: rand.New(rand.NewPCG(46, 46)), faults: faults,
		on: map[string]string{}, loaded: map[string]bool{}, life: map[string]int{}, dead: map[string]bool{}, inFlight: map[string]int{}, end: make(chan struct{}),
	}
}

// TestTurns lets functions with three times the memory of two slices answer all requests, most of them in time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, false)
		c, stop := start(t, m, newNode(t))
		const requests = 2800
		for i := range requests {
			c.request(fmt.Sprint("f", i%len(sizes)), 2*time.Second)
			time.Sleep(5 * ms)
		}
		time.Sleep(10 * time.Second)
		stop()
		sum := 0
		for _, n := range c.served {
			sum += n
		}
		if sum != requests || c.late > requests/100 {
			t.Errorf("%d of %d answered, %d late: %v", sum, requests, c.late, c.served)
		}
		if m.loads > requests/5 {
			t.Errorf("%d loads for %d requests: turns are too short", m.loads, requests)
		}
	})
}

// TestFaults lets loads and evictions fail and hang, records fail to be saved, processes end, and the node be restored from what was saved. No slice
// ever holds more than its memory, no function with requests is evicted, and once nothing fails any more each function answers.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, true)
		n := newNode(t)
		for range 10 {
			c, stop := start(t, m, n)
			for i := range 200 {
				c.request(fmt.Sprint("f", i%len(sizes)), 2*time.Second)
				time.Sleep(20 * ms)
				if i%40 == 0 {
					m.kill(c, fmt.Sprint("f", i/40%len(sizes)))
				}
			}
			c.leave()
			stop()
			time.Sleep(100 * ms) // what it had begun ends with it, or with this
			var err error
			if n, err = residency.Restore(policy, 0, m.saved); err != nil {
				t.Fatal(err)
			}
		}
		m.mu.Lock()
		m.faults = false
		m.mu.Unlock()
		c, stop := start(t, m, n)
		for i := range sizes {
			c.request(fmt.Sprint("f", i), time.Hour)
		}
		time.Sleep(5 * time.Minute)
		stop()
		close(m.end)
		for i := range sizes {
			if c.served[fmt.Sprint("f", i)] == 0 {
				t.Errorf("f%d is lost", i)
			}
		}
		if m.failed < 20 {
			t.Errorf("only %d loads failed", m.failed)
		}
	})
}

// stubborn is a Mover that logs its moves, and does not evict f0.
type stubborn struct {
	mu    sync.Mutex // guards what follows
	moves []string
}

func (m *stubborn) log(move, function string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moves = append(m.moves, move+" "+function)
}

func (m *stubborn) Load(_ context.Context, function, _ string) error {
	m.log("load", function)
	return nil
}

func (m *stubborn) Evict(_ context.Context, function, _ string) error {
	m.log("evict", function)
	if function == "f0" {
		return errors.New("no answer")
	}
	return nil
}

// TestEndedWhileEvicted lets the process of a function end that could not be evicted. The next process of the function is not evicted in its place.
func TestEndedWhileEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &stubborn{}
		var s *Swap
		s = New(Config{Node: newNode(t), Mover: m, Log: slog.New(slog.DiscardHandler), Save: func([]byte) error { return nil }, Grant: func(leases []residency.Lease) {
			for _, l := range leases {
				go func() {
					s.Want(l.Function, time.Now(), 0)
					s.Finish(l.Turn)
				}()
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		want := func(function string) {
			s.Want(function, time.Now().Add(time.Hour), 1)
			time.Sleep(200 * ms)
		}
		want("f0")
		want("f1")
		want("f2")
		s.Ended("f0")
		time.Sleep(200 * ms) // f2 loads in its place, whether or not the next decision would know of both
		want("f0")           // before the next try to evict
		time.Sleep(10 * evictPause)
		cancel()
		<-done
		if want := []string{"load f0", "load f1", "evict f0", "load f2", "evict f1", "load f0"}; !slices.Equal(m.moves, want) {
			t.Errorf("%v, want %v", m.moves, want)
		}
	})
}
