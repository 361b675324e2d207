package token

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy decides which shares of a slice get tokens. Its implementations are Table and Queue.
type Policy interface {
	String() string
	newIssuer(c Config) tokenIssuer
}

// The policies of a node, by the names that its configuration uses.
var (
	// Table executes the slot table of a slice once per window: each turn runs one set of shares. Others may use the turns of shares that
	// are idle.
	Table Policy = tablePolicy{}
	// Fast is the multi-token scheduler of FaST-GShare with corrections. The share that lacks the largest part of its quota request comes
	// first. If it finds too few free SMs, others may overtake it only with tokens that end before it can start (F44).
	Fast Policy = Queue{Name: "fast", NewOrder: By(byRelativeBacklog), Barrier: func(start time.Duration) time.Duration { return start }}
)

// Policies returns the policies that a node can have, the default first.
func Policies() []Policy { return []Policy{Table, Fast} }

// ParsePolicy returns the policy of a node with the name that its configuration uses.
func ParsePolicy(name string) (Policy, error) {
	var names []string
	for _, p := range Policies() {
		if p.String() == name {
			return p, nil
		}
		names = append(names, p.String())
	}
	return nil, fmt.Errorf("unknown token policy %q, must be %s", name, strings.Join(names, " or "))
}

// tokenIssuer decides for one slice, as its Policy requires, which shares get tokens.
type tokenIssuer interface {
	// plan prepares for a new list of shares, or returns false if they do not fit together.
	plan(members []*member) bool
	// disown takes the turns away from a share that no longer has a quota request, in the present plan as well as in the next.
	disown(m *member)
	// budgets returns what a share may use in any window: of its own time, and of time borrowed from others.
	budgets(m Member) (own, borrowed time.Duration)
	// maxCredit returns how much unused own time a share may make up for later.
	maxCredit() time.Duration
	// canUseOwnTime reports whether a share may use its own time now.
	canUseOwnTime(m *member) bool
	// enterTurnAt enters the turn that contains the given time.
	enterTurnAt(now time.Duration)
	// ownTime returns how much of its own time the share could have used in a period if enough SMs had been free.
	ownTime(m *member, from, to time.Duration) time.Duration
	// ownStart returns when in the window a share's own time begins, and false if it has none at a fixed position.
	ownStart(m *member) (time.Duration, bool)
	// issue grants tokens to waiting shares.
	issue(s *Slice)
	// nextTurn returns when the set of shares that may get tokens changes, or Never.
	nextTurn() time.Duration
}

// Waiting is a share that waits for a token and has a quota request.
type Waiting struct {
	Member
	Used    time.Duration // charged to it since it joined
	Missing time.Duration // part of its request that it has not used in the last window; negative if it used more
}

// Order sorts the waiting shares of a slice in place, the one to be served first in front. The slice calls it whenever it issues tokens, so an order
// may remember what it saw. An ID may be given to another share, of which less time is used than of the one before.
type Order func([]Waiting)

// By returns a constructor of orders that compare two shares at a time, as for slices.SortFunc, and remember nothing.
func By(compare func(a, b Waiting) int) func() Order {
	return func() Order { return func(list []Waiting) { slices.SortStableFunc(list, compare) } }
}

// Queue is a policy that serves waiting shares in a configurable order, each as soon as enough SMs are free. The time that a share uses
// counts against its quota limit only. Nodes offer the queue Fast; the laboratory compares it with others.
type Queue struct {
	Name string
	// NewOrder returns the order of a new slice.
	NewOrder func() Order
	// Barrier limits the tokens of shares that overtake the first share that finds too few free SMs: given the latest time at which that
	// share can start, it returns their latest deadline.
	Barrier func(start time.Duration) time.Duration
}

func (q Queue) String() string { return q.Name }

func (q Queue) newIssuer(c Config) tokenIssuer { return queueIssuer{q, c, q.NewOrder()} }

// queueIssuer issues the tokens of one slice in the order of a Queue.
type queueIssuer struct {
	Queue
	config Config
	order  Order
}

func (q queueIssuer) plan([]*member) bool { return true }
func (q queueIssuer) disown(*member)      {}

func (q queueIssuer) budgets(m Member) (own, borrowed time.Duration) {
	return q.config.windowFraction(m.QuotaLimit), 0
}

func (q queueIssuer) maxCredit() time.Duration   { return 0 }
func (q queueIssuer) canUseOwnTime(*member) bool { return true }
func (q queueIssuer) nextTurn() time.Duration    { return Never }
func (q queueIssuer) enterTurnAt(time.Duration)  {}

func (q queueIssuer) ownTime(m *member, from, to time.Duration) time.Duration {
	return (to - from) * time.Duration(m.QuotaRequest) / time.Duration(share.Whole)
}

func (q queueIssuer) ownStart(*member) (time.Duration, bool) { return 0, false }

// issue grants tokens from FaST-GShare's ready queue: the waiting shares below their quota limits, in the queue's order.
func (q queueIssuer) issue(s *Slice) {
	// F42. startToken limits it further, to the rest of the budget.
	until := func(m *member) time.Duration {
		return s.now + max(q.config.Floor, min(q.config.windowFraction(m.QuotaRequest), q.config.Turn))
	}
	s.grantInOrder(waitingToMakeUp(s, until), q.Barrier)
	var ready []candidate
	for _, m := range s.members {
		if m.hasRequest() && m.debt >= m.own.budget {
			m.repay(s.now)
			continue
		}
		until := until(m)
		if c, ok := s.candidateFor(m, &m.own, until); ok && m.isWaiting() {
			ready = append(ready, c)
		}
	}
	s.grantInOrder(s.sort(ready, q.order), q.Barrier)
}

// sort returns candidates in an order. Those without a quota request come last.
func (s *Slice) sort(list []candidate, order Order) []candidate {
	var waiting []Waiting
	of, rest := map[ID]candidate{}, []candidate(nil)
	for _, c := range list {
		if !c.hasRequest() {
			rest = append(rest, c)
			continue
		}
		since := s.now - s.config.Window
		missing := s.config.windowFraction(c.QuotaRequest) - c.own.used(since) - c.borrowed.used(since)
		waiting = append(waiting, Waiting{c.Member, c.own.total() + c.borrowed.total(), missing})
		of[c.ID] = c
	}
	order(waiting)
	list = list[:0]
	for _, w := range waiting {
		list = append(list, of[w.ID])
	}
	return append(list, rest...)
}

// byRelativeBacklog orders shares by the fraction of their quota request that they lack, the largest first: missing / (missing + used), as
// in FaST-GShare's code. Among shares beyond their requests, the one that used least in proportion comes first.
func byRelativeBacklog(a, b Waiting) int {
	return cmp.Compare(b.Missing*time.Duration(a.QuotaRequest), a.Missing*time.Duration(b.QuotaRequest))
}
