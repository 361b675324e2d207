package rckm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// step is the resolution of a device in tests.
const step = 100 * us

// program is a share with one process, which launches its next kernel as soon as it may.
type program struct {
	Member
	kernel    time.Duration
	blocks    int64
	from      time.Duration // first launch
	delays    float64       // probability that the host is late, in each step
	preferred bool          // the device runs its kernels before those of others

	queue []time.Duration // times of launches of unfinished kernels
	late  time.Duration   // end of a delay
	ended time.Duration   // end of its latest kernel
	ran   time.Duration   // device time of the present period
	tick  Launches
}

func (p *program) launch(m *machine, r *rand.Rand, now time.Duration) {
	if r.Float64() < p.delays {
		p.late = now + time.Duration(1+r.IntN(20))*step
	}
	most := 1 // as in the hook
	if p.ended > 0 && p.kernel <= 500*us {
		most = 2
	}
	for now >= max(p.from, p.late) && len(p.queue) < most && m.credit[p.ID] > 0 {
		m.credit[p.ID] -= p.blocks
		p.queue = append(p.queue, now)
		if p.tick.Blocks == 0 {
			p.tick.First = now
		}
		p.tick.Blocks, p.tick.Last = p.tick.Blocks+p.blocks, now
	}
}

// end ends the oldest kernel. As in the hook, its time includes that in which it waited behind other programs.
func (p *program) end(now time.Duration) {
	p.tick.Device += now - max(p.queue[0], p.ended)
	p.queue, p.ended = p.queue[1:], now
}

// device runs one kernel at a time: of a preferred program, or else the one that was launched first.
type device struct {
	*machine
	programs []*program
	running  *program
	until    time.Duration
}

func (d *device) choose() (next *program) {
	for _, p := range d.programs {
		if len(p.queue) > 0 && (next == nil || p.preferred && !next.preferred || p.preferred == next.preferred && p.queue[0] < next.queue[0]) {
			next = p
		}
	}
	return next
}

func (d *device) start(now time.Duration) {
	if d.running != nil {
		return
	}
	if d.running = d.choose(); d.running != nil {
		d.until = now + d.running.kernel
	}
}

// run runs the device for a time, and returns how much of it each program had.
func (d *device) run(t *testing.T, r *rand.Rand, now, length time.Duration) (ran []time.Duration) {
	t.Helper()
	for end := now + length; now < end; {
		d.start(now) // before a host can launch the next kernel
		for _, p := range d.programs {
			p.launch(d.machine, r, now)
		}
		d.start(now)
		now += step
		if d.running != nil {
			d.running.ran += step
			if now == d.until {
				d.running.end(now)
				d.running = nil
			}
		}
		if now%tick != 0 {
			continue
		}
		for _, p := range d.programs {
			p.tick.Busy = len(p.queue) > 0
			if err := d.Report(now, p.ID, p.tick); err != nil {
				t.Fatal(err)
			}
			p.tick = Launches{}
		}
		d.advance(now)
	}
	for _, p := range d.programs {
		ran = append(ran, p.ran)
		p.ran = 0
	}
	return ran
}

// TestRequests checks that shares which always have work get their requests, whatever their kernels, the order in which they start, whom the
// device prefers and how the hosts are delayed. Best effort may be behind by the half second of its request that it waits patiently.
func TestRequests(t *testing.T) {
	const settled, end = time.Second, 10 * time.Second
	seeds := []uint64{355, 1422, 1555} // each finds something that the others do not
	for seed := range uint64(300) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 2))
		d := greedyPair(t, r)
		d.run(t, r, 0, settled)
		var behind [2]time.Duration // device time, in the worst period that ends now
		for now := settled; now < end; now += 100 * ms {
			for k, ran := range d.run(t, r, now, 100*ms) {
				p := d.programs[k]
				second := time.Second * time.Duration(p.Request) / time.Duration(share.Whole) // of its request
				kernels := 2 * max(d.programs[0].kernel, d.programs[1].kernel)
				rate, most := 3*second/4, second*3/20+kernels
				if p.Priority == share.BestEffort {
					rate, most = 7*second/8, second*3/4+kernels
				}
				behind[k] = max(0, behind[k]+rate/10-ran)
				if behind[k] > most {
					t.Errorf("seed %d, at %v: share %d is %v behind, want at most %v: %s", seed, now, p.ID, behind[k], most, d)
				}
			}
		}
	}
}

// greedyPair returns a device with an SLO share and a best-effort share that always have work.
func greedyPair(t *testing.T, r *rand.Rand) *device {
	t.Helper()
	d := &device{machine: newMachine(t, Config{})}
	prefers := r.IntN(2) == 0
	request := share.PerMille(100 + 50*r.IntN(15))
	for id, member := range []Member{
		{Priority: share.SLO, Request: request, Limit: share.Whole},
		{Priority: share.BestEffort, Request: 900 - request, Limit: share.Whole},
	} {
		member.ID = token.ID(id + 1)
		d.programs = append(d.programs, &program{
			Member: member, kernel: []time.Duration{200 * us, 500 * us, ms, 2 * ms, 5 * ms}[r.IntN(5)], blocks: []int64{1, 64, 1000}[r.IntN(3)],
			from: time.Duration(r.IntN(20)) * 13 * ms, delays: []float64{0, 1e-4, 1e-3, 1e-2}[r.IntN(4)],
			preferred: prefers && member.Priority == share.SLO,
		})
		if err := d.Join(0, member); err != nil {
			t.Fatal(err)
		}
	}
	d.advance(0)
	return d
}

func (d *device) String() (s string) {
	for _, p := range d.programs {
		s += fmt.Sprintf("{%s %v, kernel %v x %d, from %v, delays %v, preferred %v} ",
			p.Priority, p.Request, p.kernel, p.blocks, p.from, p.delays, p.preferred)
	}
	return s
}
