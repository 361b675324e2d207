package token

import "time"

// member is a share with its accounts. Under Table, own holds the use of its turns, up to the request, and borrowed the use of others'
// turns, up to the limit: so borrowed time is never missing in the member's own turn. A Queue uses own alone, up to the limit.
type member struct {
	Member
	own, borrowed ledger
	payer         *ledger // account charged for the latest token

	hasWork, live     bool // live: it holds a token
	token             Token
	announced         bool // the latest change was a grant or a renewal
	announcedSequence uint64

	measurement
	debt   time.Duration // measured overrun that no token has paid for yet
	credit time.Duration // own time that it could not use and may make up for in the spare time of its turns

	owner    bool          // the present turn is its own
	ownUntil time.Duration // end of its own time in the present series of turns
}

// measurement compares the time for which a member held tokens with its reported use.
type measurement struct {
	lastSettled time.Duration // time of the latest settlement
	held        time.Duration // time for which ended tokens were held since then
	heldSince   time.Duration // start of the live token's part that held does not include
	unreported  time.Duration // time that passed without reported use, which may still be reported
	seriesStart time.Duration // start of the present series of tokens without a pause
	lastUse     time.Duration // end of the latest token and its known overrun
}

// waiting reports whether the member has work and no token.
func (m *member) waiting() bool { return m.hasWork && !m.live }

// dueDebt returns the part of the debt that a token paid by l settles: all that leaves the token its shortest length.
func (m *member) dueDebt(l *ledger, shortest time.Duration) time.Duration {
	return min(m.debt, l.budget-shortest)
}

// start returns when l can pay for a token of the shortest length and for the due debt.
func (m *member) start(l *ledger, shortest time.Duration) time.Duration {
	return l.start(shortest + m.dueDebt(l, shortest))
}

// take grants the member a token from now to at most until, paid by l, which must be able to. Due debt is charged with the token and
// shortens it: a member may overrun each token by one kernel, but never gains by it.
func (m *member) take(now, until, shortest time.Duration, l *ledger, sequence uint64) {
	due := m.dueDebt(l, shortest)
	amount := min(until-now, l.available(now)-due)
	m.debt -= due
	if l == &m.own {
		m.ownUntil -= due
	}
	if l == &m.own && m.owner {
		// Spent credit moves the end of its own time: what is lost again in this token can be made up for behind it.
		m.credit -= max(0, now+amount-max(now, m.ownUntil))
		m.ownUntil = max(m.ownUntil, now+amount)
	}
	if !m.announced {
		m.seriesStart = now
	}
	m.payer, m.live, m.heldSince = l, true, now
	m.token = Token{Unit: Time, Amount: int64(amount), Deadline: now + amount, Until: now + amount, Sequence: sequence}
	if l == &m.own {
		m.token.Until = max(m.token.Until, m.ownUntil)
	}
	l.reserve(now, amount+due)
}

// end ends the token, at a time that may be before its deadline, or after it if the server is late.
func (m *member) end(now time.Duration) {
	m.live, m.lastUse = false, now
	m.held += now - m.heldSince
	m.payer.correct(now, now-m.token.Deadline)
}

// settle compares the reported use since the last settlement with the time held (F43), and returns by how much the use was larger. A
// kernel may be reported when it ends, so most differences are of one kernel and cancel out over time: larger use becomes debt, of at
// most one window; smaller use reduces the debt first, and the rest is returned to the account.
func (m *member) settle(now, busy, window, maxCredit time.Duration) (overrun time.Duration) {
	m.unreported += now - m.lastSettled
	busy = min(max(busy, 0), m.unreported)
	m.unreported = min(m.unreported-busy, window)
	if m.live {
		m.held += now - m.heldSince
		m.heldSince = now
	}
	overrun = busy - m.held
	m.lastSettled, m.held = now, 0
	if overrun > 0 {
		paid := min(overrun, m.credit)
		m.credit -= paid
		m.payer.correct(now, paid)
		m.debt = min(m.debt+overrun-paid, window)
		return overrun
	}
	repaid := min(-overrun, m.debt)
	m.debt -= repaid
	m.payer.correct(now, overrun+repaid)
	if maxCredit > 0 && m.payer == &m.own {
		m.credit = min(m.credit-overrun-repaid, maxCredit)
	}
	return 0
}

// beginTurns starts the member's own time in a series of turns. Debt is paid from it; a member that owes more skips the series and pays
// with what its account would have allowed. Credit from earlier turns is kept up to the shortest token, so that no window overflows.
func (m *member) beginTurns(start, end, maxCredit time.Duration) {
	m.credit = min(m.credit, maxCredit)
	turn := min(max(0, end-start), m.own.budget)
	m.ownUntil = end
	if m.debt < turn {
		return
	}
	paid := min(turn, m.own.available(start))
	m.own.charge(start, paid)
	m.debt -= paid
	m.ownUntil = start
}
