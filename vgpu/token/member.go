package token

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// member is a share that takes part in the time sharing of a slice, with its accounts. With slot tables, the account own limits the use in
// the share's own turns to its quota request, and the account borrowed limits the use in turns of others to the rest of its quota limit. So
// borrowed time is never deducted from its own turns. A Queue uses only own, up to the quota limit.
type member struct {
	Member
	own, borrowed account
	account       *account // account charged for the latest token

	hasWork, live     bool // live: it holds a token
	token             Token
	announced         bool // the latest change was a grant or a renewal
	announcedSequence uint64

	heldTime
	overrunState
	debt   time.Duration // measured overrun that no token has paid for yet; negative after payments for work that is still unfinished
	credit time.Duration // own time that it could not use and may make up for in the spare time of its turns

	ownTurns
}

// ownTurns are the turns of a share.
type ownTurns struct {
	owner       bool          // the present turn is its own
	ownUntil    time.Duration // end of its own time in the present series of turns
	ownsAllTime bool          // its SMs are its own at all times, see grantWholeQuotas
}

// members are the shares of a slice, in the order of their IDs.
type members []*member

// heldTime records for how long a share held tokens, to compare it with the device time that the share reports.
type heldTime struct {
	held        time.Duration // time for which ended tokens were held since the latest settlement
	heldSince   time.Duration // start of the part of the live token that held does not include
	reportable  time.Duration // time in which it may have used the device, less the use that it has reported
	seriesStart time.Duration // start of the present series of tokens without a pause
	lastUse     time.Duration // end of the latest token and of its known overrun
}

func (m *member) isWaiting() bool { return m.hasWork && !m.live }

// owed returns the known debt of a share: device time used beyond its tokens.
func (m *member) owed() time.Duration { return max(0, m.debt) }

// waitsForDebt reports whether a share gets no token because it owes time and has no own time to repay it from. It then waits for as long as
// it overran its tokens.
func (m *member) waitsForDebt() bool { return !m.hasRequest() && m.owed() > 0 }

// repayableDebt returns the part of a share's debt (device time used beyond its tokens) that its next token repays: as much as still leaves
// the token its minimum length.
func (m *member) repayableDebt(l *account, shortest time.Duration) time.Duration {
	return min(m.owed(), l.budget-shortest)
}

// earliestStart returns the earliest time at which an account can pay for a token of the minimum length and for the debt that it repays.
func (m *member) earliestStart(l *account, shortest time.Duration) time.Duration {
	return l.earliestStart(shortest + m.repayableDebt(l, shortest))
}

// startToken grants the share a token from now until the given time at most, charged to an account that can pay for it. Repaid debt is
// charged with the token and shortens it: a share may overrun each token by one kernel, but never gains by it.
func (m *member) startToken(now, until, shortest time.Duration, l *account, sequence uint64) {
	due := m.repayableDebt(l, shortest)
	amount := min(until-now, l.longestUse(now)-due)
	m.debt -= due
	if l == &m.own {
		m.ownUntil -= due
	}
	if l == &m.own && m.owner {
		// Spending credit moves the end of the share's own time, so that time lost again during this token can be made up for after it.
		m.credit -= max(0, now+amount-max(now, m.ownUntil))
		m.ownUntil = max(m.ownUntil, now+amount)
	}
	if !m.announced {
		m.seriesStart = now
	}
	m.account, m.live, m.heldSince = l, true, now
	m.token = Token{Unit: Time, Amount: int64(amount), Deadline: now + amount, Until: now + amount, Sequence: sequence}
	if l == &m.own {
		m.token.Until = max(m.token.Until, m.ownUntil)
	}
	l.reserve(now, amount+due)
}

// endToken ends the token and corrects the account by the difference between now and the token's deadline.
func (m *member) endToken(now time.Duration) {
	m.live, m.lastUse, m.openSince, m.tolerance = false, now, now, overrunTolerance
	m.held += now - m.heldSince
	m.account.correct(now, now-m.token.Deadline)
}

// heldUntil returns for how long it has held tokens since the latest settlement.
func (m *member) heldUntil(now time.Duration) time.Duration {
	if m.live {
		return m.held + now - m.heldSince
	}
	return m.held
}

// settle compares the device time that a share reported since the last settlement with the time for which it held tokens (F43), and returns
// the excess. A kernel may be reported when it ends, so most differences are of one kernel and cancel out over time: an excess becomes debt;
// a shortfall reduces the debt first, and the remainder is returned to the account. Reported time counts for at most the time in which the
// share may have used the device. The excess is at least the time for which others waited for the share's open work.
func (m *member) settle(now, busy, window, maxCredit time.Duration) (overrun time.Duration) {
	busy = min(max(busy, 0), m.reportable)
	m.reportable -= busy
	if m.open == NoWork {
		m.reportable = min(m.reportable, window)
	}
	m.held = m.heldUntil(now)
	if m.live {
		m.heldSince = now
	}
	overrun = busy - m.held
	tolerated := min(m.claimed, m.tolerance)
	if m.claimed > tolerated {
		overrun = max(overrun, m.claimed-tolerated)
	}
	m.tolerance -= tolerated
	m.held, m.claimed = 0, 0
	if overrun > 0 {
		paid := min(overrun, m.credit)
		m.credit -= paid
		m.account.correct(now, paid)
		m.debt += overrun - paid
	} else {
		repaid := min(-overrun, m.owed())
		m.debt -= repaid
		m.account.correct(now, overrun+repaid)
		if maxCredit > 0 && m.account == &m.own {
			m.credit = min(m.credit-overrun-repaid, maxCredit)
		}
	}
	if m.open == NoWork && m.debt < 0 {
		m.makeUp.budget -= m.debt // its turns have paid more than the overrun turned out to be
		m.debt = 0
	}
	return max(0, overrun)
}

// startOwnTime begins a series of the share's own turns. Unused time of earlier turns (credit) is kept up to maxCredit, so that no window
// overflows.
func (m *member) startOwnTime(end, maxCredit time.Duration) {
	m.credit = min(m.credit, maxCredit)
	m.ownUntil = end
}

// passOwnTime records that own time of the share has passed without a token, and returns the part of it that was lost: the other part repaid
// debt, or the share's work took it without a token and has paid for it in advance. A share with the whole quota owes nothing.
func (m *member) passOwnTime(from, d time.Duration) (lost time.Duration) {
	paid := min(d, m.own.longestUse(from))
	if !m.overruns {
		paid = min(paid, m.owed())
	}
	if paid <= 0 || m.QuotaRequest == share.Whole {
		return d
	}
	m.own.charge(from, paid)
	m.debt -= paid
	return d - paid
}

// repay charges debt to the account for the share's own time, as much as that allows now.
func (m *member) repay(now time.Duration) {
	paid := min(m.debt, m.own.longestUse(now))
	m.own.charge(now, paid)
	m.debt -= paid
}
