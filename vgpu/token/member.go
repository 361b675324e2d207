package token

import "time"

// member is a share with its accounts. Under a table, own holds what its turns gave, up to the request, and lent the
// rest up to the limit: so borrowed time never stands in the way of the member's own turn. The queue policies know one
// account, up to the limit.
type member struct {
	Member
	own, lent ledger
	from      *ledger // that pays for the latest token

	want, live bool
	token      Token
	told       bool   // the server knows of a token
	known      uint64 // the latest one that it knows of

	// Time since the last settlement: held under tokens that ended, and since when the live one counts.
	settled, held, since time.Duration
	slack                time.Duration // passed without being reported as use, and may be reported late
	began, ended         time.Duration // tokens on end, and the use known of them

	debt   time.Duration // measured overrun that no token has paid yet
	credit time.Duration // own time that it could not use, to be made up for in the spare time of its turns

	owner bool          // the turn is the member's own
	until time.Duration // end of its own time in the turns on end
}

// waiting says that the member has work and no token.
func (m *member) waiting() bool { return m.want && !m.live }

// dues is the part of the debt that a token paid by l settles: it leaves the token the length that it needs.
func (m *member) dues(l *ledger, need time.Duration) time.Duration {
	return min(m.debt, l.budget-need)
}

// start is when l could pay for a token of the needed length and for the debt.
func (m *member) start(l *ledger, need time.Duration) time.Duration {
	return l.start(need + m.dues(l, need))
}

// take gives the member a token from now to at most until. The overrun of the last token is charged with this one, and
// shortens it: a member may always overrun by one kernel, but never gains by it. The caller knows that l can pay.
func (m *member) take(now, until, need time.Duration, l *ledger, sequence uint64) {
	dues := m.dues(l, need)
	amount := min(until-now, l.room(now)-dues)
	m.debt -= dues
	if l == &m.own {
		m.until -= dues
	}
	if l == &m.own && m.owner {
		// Spent credit moves the end of its own time: what is lost again in this token can be made up for behind it.
		m.credit -= max(0, now+amount-max(now, m.until)) // the queue policies have no until
		m.until = max(m.until, now+amount)
	}
	if !m.told {
		m.began = now
	}
	m.from, m.live, m.since = l, true, now
	m.token = Token{Unit: Time, Amount: int64(amount), Deadline: now + amount, Until: now + amount, Sequence: sequence}
	if l == &m.own {
		m.token.Until = max(m.token.Until, m.until)
	}
	l.reserve(now, amount+dues)
}

// end takes the token away at a time that may be before its deadline, or after it if the server is late.
func (m *member) end(now time.Duration) {
	m.live, m.ended = false, now
	m.held += now - m.since
	m.from.correct(now, now-m.token.Deadline)
}

// settle compares the measured use since the last settlement with the time held (FG-76, F43). A kernel counts when it ends,
// so both differences are mostly of one kernel and cancel out over time: more use is a debt of at most one window, less use
// is taken off the debt first, and then given back. It returns by how much more was used.
func (m *member) settle(now, busy time.Duration, c Config) (over time.Duration) {
	m.slack += now - m.settled
	busy = min(max(busy, 0), m.slack)
	m.slack = min(m.slack-busy, c.Window)
	if m.live {
		m.held += now - m.since
		m.since = now
	}
	over = busy - m.held
	m.settled, m.held = now, 0
	if over > 0 {
		paid := min(over, m.credit)
		m.credit -= paid
		m.from.correct(now, paid)
		m.debt = min(m.debt+over-paid, c.Window)
		return over
	}
	back := min(-over, m.debt)
	m.debt -= back
	m.from.correct(now, over+back)
	if c.Policy == Table && m.from == &m.own {
		m.credit = min(m.credit-over-back, c.Window)
	}
	return 0
}
