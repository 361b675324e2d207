// Package supervisor manages the MPS daemon of one slice, a GPU or a MIG instance. It decides when the daemon is started and
// restarted, when the slice accepts new containers, and which processes run without MPS and so without its limits. A daemon with clients is
// never stopped, unless a device fault has already failed those clients.
package supervisor

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Daemon is the observed state of an MPS control daemon.
type Daemon string

// The states of a daemon.
const (
	Absent  Daemon = "absent"
	Silent  Daemon = "silent" // its process runs, but does not answer
	Answers Daemon = "answers"
)

// Observation is the state of a slice and of its MPS daemon at one time.
type Observation struct {
	Wanted  bool // containers share the slice, or are about to
	Daemon  Daemon
	Fault   bool  // a device fault has failed the clients: the server accepts none until all of these have ended
	Clients int   // processes that run through MPS
	NonMPS  []int // PIDs of processes with a context of their own: CUDA silently runs without MPS if it does not find the daemon
}

// Action is what the caller should do with the MPS daemon of a slice.
type Action string

// The actions. The caller does not wait for their effect, which later observations show.
const (
	Nothing    Action = ""
	Start      Action = "start"
	Stop       Action = "stop"        // with the daemon's own command
	Kill       Action = "kill"        // the daemon's process
	EndClients Action = "end clients" // with the daemon's command, before any signal is sent: a killed client may take the server down with it
)

// Decision is what to do about the MPS daemon of a slice, and whether the slice accepts new containers.
type Decision struct {
	Action Action
	Closed string // why the slice accepts no new containers; empty if it does
	NonMPS []int  // PIDs of the processes that are confirmed to run without MPS, ascending
}

// Config configures a Supervisor. The interval between observations should be much shorter than each of its durations.
type Config struct {
	FirstDelay time.Duration // from the first start to the next; each further delay is twice as long
	LastDelay  time.Duration // maximum delay
	Settled    time.Duration // how long a daemon must be healthy for the delay to fall back to FirstDelay
	Patience   time.Duration // how long the daemon may be silent before it is killed
	Grace      time.Duration // how long to wait for a fault to pass by itself
}

// Supervisor decides from periodic observations when to start, stop or kill the MPS daemon of one slice. It is not safe for concurrent use.
type Supervisor struct {
	config    Config
	nextStart time.Time     // the daemon is not started before
	delay     time.Duration // between the next start and the one after it
	healthy   period
	silent    period
	fault     period
	nonMPS    map[int]bool // PIDs in the last observation
}

// New returns a Supervisor without any observations.
func New(c Config) *Supervisor { return &Supervisor{config: c, delay: c.FirstDelay} }

// period measures how long a condition has held without interruption.
type period struct {
	since time.Time
	on    bool
}

// update records whether the condition holds now. It returns for how long it has held, or 0 if it does not hold.
func (p *period) update(now time.Time, on bool) time.Duration {
	if !on || !p.on {
		*p = period{now, on}
	}
	return now.Sub(p.since)
}

// smsPerTPC is the number of SMs in a texture processing cluster (TPC), which is the unit in which MPS limits SMs: on a GPU with 188 SMs,
// clients limited to 25, 50 and 75 % get 46, 94 and 140.
const smsPerTPC = 2

// Cap returns how many of a slice's SMs MPS lets a client with the given per-mille limit use: rounded down to whole TPCs, but at least one
// TPC.
func Cap(part share.PerMille, sms int) int {
	return min(sms, max(smsPerTPC, int(part)*sms/int(share.Whole)/smsPerTPC*smsPerTPC))
}

// Decide returns what to do about a slice's MPS daemon after an observation. now must not decrease from call to call.
func (s *Supervisor) Decide(now time.Time, o Observation) Decision {
	d := s.decideDaemon(now, o)
	d.NonMPS = s.confirmNonMPS(o.NonMPS)
	if d.Closed == "" && len(d.NonMPS) > 0 {
		d.Closed = "processes run without MPS: PID " + firstOf(d.NonMPS)
	}
	return d
}

// firstOf lists the first few PIDs, so that a reason stays short however many there are.
func firstOf(pids []int) string {
	const most = 4
	var texts []string
	for _, pid := range pids[:min(len(pids), most)] {
		texts = append(texts, strconv.Itoa(pid))
	}
	if len(pids) > most {
		texts = append(texts, "and others")
	}
	return strings.Join(texts, ", ")
}

// decideDaemon returns the action for the daemon and whether the slice accepts new containers, ignoring processes that bypass MPS.
func (s *Supervisor) decideDaemon(now time.Time, o Observation) Decision {
	silent := s.silent.update(now, o.Daemon == Silent)
	fault := s.fault.update(now, o.Daemon == Answers && o.Fault)
	healthy := s.healthy.update(now, o.Daemon == Answers && !o.Fault)
	if s.healthy.on && healthy >= s.config.Settled {
		s.delay = s.config.FirstDelay
	}
	switch {
	case o.Daemon == Absent:
		return s.decideAbsent(now, o)
	case o.Daemon == Silent:
		return s.decideSilent(now, o, silent)
	case o.Fault:
		return s.decideFault(now, o, fault)
	case !o.Wanted:
		s.resetDelay()
		return Decision{Action: unlessClients(o.Clients, Stop), Closed: "the slice is not shared"}
	}
	return Decision{}
}

// resetDelay lets the MPS daemon be started again at once: a healthy daemon that is stopped has not failed.
func (s *Supervisor) resetDelay() {
	s.delay, s.nextStart = s.config.FirstDelay, time.Time{}
}

// decideAbsent decides when no daemon runs. It starts one if the slice is shared, but not while clients of the earlier daemon run: they
// keep its server alive, and a second server on the slice is not supported.
func (s *Supervisor) decideAbsent(now time.Time, o Observation) Decision {
	switch {
	case !o.Wanted:
		return Decision{Closed: "the slice is not shared"}
	case o.Clients > 0:
		return Decision{Closed: "clients of a daemon that has ended still run"}
	case now.Before(s.nextStart):
		return Decision{Closed: "the daemon ended lately"}
	}
	s.nextStart = now.Add(s.delay)
	s.delay = min(2*s.delay, s.config.LastDelay)
	return Decision{Action: Start, Closed: "the daemon is being started"}
}

// decideSilent decides when the daemon does not answer. It kills the daemon once it has been silent for Config.Patience, unless it has
// clients.
func (s *Supervisor) decideSilent(now time.Time, o Observation, lasted time.Duration) Decision {
	d := Decision{Closed: "the daemon does not answer"}
	if lasted >= s.config.Patience {
		d.Action = unlessClients(o.Clients, Kill)
		s.silent.since = now // if the kill has no effect, it is repeated after another Patience
	}
	return d
}

// decideFault decides after a device fault, which has failed all MPS clients: the server accepts clients again once these have ended. After
// the grace period it ends the remaining clients or, if there are none, stops the daemon.
func (s *Supervisor) decideFault(now time.Time, o Observation, lasted time.Duration) Decision {
	d := Decision{Closed: "a fault has failed its clients"}
	if lasted >= s.config.Grace {
		if d.Action = Stop; o.Clients > 0 {
			d.Action = EndClients
		}
		s.fault.since = now
	}
	return d
}

// unlessClients returns the action if the daemon has no clients, else Nothing.
func unlessClients(clients int, a Action) Action {
	if clients > 0 {
		return Nothing
	}
	return a
}

// confirmNonMPS returns the processes that ran without MPS in both this and the previous observation. One observation is not enough, since
// it may catch a process that is just connecting to MPS.
func (s *Supervisor) confirmNonMPS(nonMPS []int) (confirmed []int) {
	before := s.nonMPS
	s.nonMPS = map[int]bool{}
	for _, pid := range nonMPS {
		s.nonMPS[pid] = true
		if before[pid] {
			confirmed = append(confirmed, pid)
		}
	}
	slices.Sort(confirmed)
	return slices.Compact(confirmed)
}
