// Package supervisor decides over the MPS daemon of one slice, a GPU or a MIG instance (FG-60, FG-65): when it is started,
// and started again; when new containers may come; and which processes run without it, and so without its limits. What
// still has clients is never ended, but for clients that a fault of the device has failed already.
package supervisor

import "time"

// Daemon is how the control daemon was found.
type Daemon string

// The daemon's states.
const (
	Absent  Daemon = "absent"
	Silent  Daemon = "silent" // its process is there, and does not answer
	Answers Daemon = "answers"
)

// Look is what was seen of a slice at one time.
type Look struct {
	Wanted  bool // containers share the slice, or are about to
	Daemon  Daemon
	Fault   bool  // its server serves nobody until all clients of a fault have ended
	Clients int   // processes that run through MPS
	Bare    []int // processes with a context of their own, by PID: where a client does not find the daemon, CUDA runs it without
}

// Action is what is due about the daemon.
type Action string

// The actions. None of them waits; what they did is seen at the next look.
const (
	Nothing    Action = ""
	Start      Action = "start"
	Stop       Action = "stop"        // by its own command
	Kill       Action = "kill"        // its process
	EndClients Action = "end clients" // by the daemon's command, before any signal: a killed client may take the server with it
)

// Orders follow from a look.
type Orders struct {
	Do     Action
	Closed string // why no new container may come; empty where it may
	Bare   []int  // the processes that run without limits for certain, ascending
}

// Config is what a supervisor goes by. Looks should be much closer than each of the times.
type Config struct {
	FirstDelay time.Duration // from a start to the next; each further one takes twice as long
	LastDelay  time.Duration // at most
	Settled    time.Duration // a daemon that was well for that long starts at once again
	Patience   time.Duration // how long it may be silent
	Grace      time.Duration // how long a fault may take to end by itself
}

// Supervisor remembers from look to look. It is not safe for concurrent use.
type Supervisor struct {
	config Config
	next   time.Time     // no start before
	delay  time.Duration // that the next start brings
	well   period
	silent period
	fault  period
	bare   map[int]bool // at the last look
}

// New gives a supervisor of a daemon of which nothing is known.
func New(c Config) *Supervisor { return &Supervisor{config: c, delay: c.FirstDelay} }

// period is how long something has been so without a break.
type period struct {
	since time.Time
	on    bool
}

// look gives how long it has been so, now that it is or is not.
func (p *period) look(now time.Time, on bool) time.Duration {
	if !on || !p.on {
		*p = period{now, on}
	}
	return now.Sub(p.since)
}
