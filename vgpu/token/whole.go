package token

import "github.com/gshare-dev/gshare/vgpu/share"

// grantWholeQuotas finds the shares that own their SMs at all times, those with the whole quota, and grants tokens to the ones that wait, before
// overruns or the turns of others can take these SMs. Shares with a request always leave room for them, since their slot table does. Whatever
// such a share launches runs in its own time, with a token or without one, so that it never owes time. If its request has just been raised to
// the whole quota, its SMs are its own from the next slot table on.
func grantWholeQuotas(s *Slice) {
	for _, m := range s.members {
		m.ownsAllTime = m.QuotaRequest == share.Whole && s.issuer.canUseOwnTime(m)
		if !m.isWaiting() || !m.ownsAllTime {
			continue
		}
		if m.overruns && s.free >= 0 {
			s.endOverrun(m) // its SMs are still there
		}
		until := min(s.issuer.nextTurn(), s.now+s.config.Window)
		if c, ok := s.candidateFor(m, &m.own, until); ok && m.SM <= s.free {
			s.grant(c, until)
		}
	}
}
