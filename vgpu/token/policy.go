package token

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy selects the members of a slice that get tokens. Its implementations are Table and Queue.
type Policy interface {
	String() string
	newIssuer(c Config) issuer
}

// The policies of a node, by the names that its configuration uses.
var (
	// Table executes the slot table of the members once a window, and lends the turns of idle members to others.
	Table Policy = tablePolicy{}
	// Fast is the multi-token scheduler of FaST-GShare with its corrections: the member that lacks the largest part of its request
	// comes first, and one that does not fit is overtaken only by tokens that end before it can start (F44).
	Fast Policy = Queue{Name: "fast", Compare: byRelativeBacklog, Barrier: func(start time.Duration) time.Duration { return start }}
)

// ParsePolicy returns the policy of that name, for nodes: table or fast.
func ParsePolicy(name string) (Policy, error) {
	for _, p := range []Policy{Table, Fast} {
		if p.String() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown token policy %q, must be %s or %s", name, Table, Fast)
}

// issuer is a policy at work on one slice.
type issuer interface {
	// plan prepares for a new list of members, or returns false if they do not fit together.
	plan(members []*member) bool
	// budgets returns what a member may use in any window: of its own time, and of time borrowed from others.
	budgets(m Member) (own, borrowed time.Duration)
	// maxCredit returns how much unused own time a member may make up for later.
	maxCredit() time.Duration
	// ownTime reports whether a member may use its own time now.
	ownTime(m *member) bool
	// issue grants tokens to waiting members.
	issue(s *Slice)
	// nextTurn returns when the set of members that may get tokens changes, or Never.
	nextTurn() time.Duration
}

// Backlog is what one waiting member lacks.
type Backlog struct {
	QuotaRequest share.PerMille
	Missing      time.Duration // part of its request that it has not used in the last window; negative if it used more
}

// Queue is a policy that serves waiting members in an order, each as soon as enough SMs are free. A member has one account, up to its
// limit. Fast is the queue of the product; the laboratory compares it with others.
type Queue struct {
	Name string
	// Compare orders two members, as for slices.SortFunc.
	Compare func(a, b Backlog) int
	// Barrier returns the latest deadline of tokens for members behind the first one that finds too few free SMs, which can start at
	// the given time at the latest.
	Barrier func(start time.Duration) time.Duration
}

func (q Queue) String() string { return q.Name }

func (q Queue) newIssuer(c Config) issuer { return queueIssuer{q, c} }

// queueIssuer is a Queue on one slice. It has no state beside that of the members.
type queueIssuer struct {
	Queue
	config Config
}

func (q queueIssuer) plan([]*member) bool { return true }

func (q queueIssuer) budgets(m Member) (own, borrowed time.Duration) {
	return q.config.part(m.QuotaLimit), 0
}

func (q queueIssuer) maxCredit() time.Duration { return 0 }
func (q queueIssuer) ownTime(*member) bool     { return true }
func (q queueIssuer) nextTurn() time.Duration  { return Never }

// issue implements FaST-GShare's ready queue: the members that wait and have not reached their limit, in the queue's order.
func (q queueIssuer) issue(s *Slice) {
	var ready []candidate
	for _, m := range s.members {
		until := s.now + max(q.config.Floor, min(q.config.part(m.QuotaRequest), q.config.Turn)) // F42; take limits it to the rest of the budget
		if c, ok := s.candidate(m, &m.own, until); ok && m.waiting() {
			ready = append(ready, c)
		}
	}
	s.fill(s.sorted(ready, q.Compare), q.Barrier)
}

// sorted sorts candidates by their backlogs.
func (s *Slice) sorted(list []candidate, compare func(a, b Backlog) int) []candidate {
	slices.SortStableFunc(list, func(a, b candidate) int { return compare(s.backlog(a.member), s.backlog(b.member)) })
	return list
}

func (s *Slice) backlog(m *member) Backlog {
	since := s.now - s.config.Window
	return Backlog{m.QuotaRequest, s.config.part(m.QuotaRequest) - m.own.used(since) - m.borrowed.used(since)}
}

// byRelativeBacklog orders first the member that lacks the largest part of its request. That is the order of FaST-GShare's code,
// missing / (missing + used), continued beyond the request: there, the member that used least in proportion comes first.
func byRelativeBacklog(a, b Backlog) int {
	return cmp.Compare(b.Missing*time.Duration(a.QuotaRequest), a.Missing*time.Duration(b.QuotaRequest))
}
