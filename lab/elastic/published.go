package elastic

import (
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// PublishedAlgorithm computes the pressure state and the members' tokens by Algorithm 2 exactly as the Dilu paper describes it, for
// comparison: one state that every SLO member overwrites, tokens of the others divided by the relative change of a launch cycle, no floor,
// no bound for growth. Where the paper is silent, the state begins as NONE and the change is that of the latest SLO member.
func PublishedAlgorithm(p rckm.Pressure, members []rckm.Observation) (rckm.Pressure, []int64) {
	tokens := make([]int64, len(members))
	for k, m := range members {
		if m.Priority != share.SLO {
			tokens[k] = publishedBestEffortTokens(p, m)
			continue
		}
		p.Severity = 0
		if m.Shortest > 0 {
			p.Severity = share.PerMille(min(int64(m.Cycle)*int64(share.Whole)/int64(m.Shortest), 1_000_000))
		}
		p.State, tokens[k] = publishedSLOTokens(p.Severity, m, othersLaunch(members, k))
	}
	return p, tokens
}

func publishedSLOTokens(severity share.PerMille, m rckm.Observation, othersLaunch bool) (rckm.State, int64) {
	switch {
	case severity > m.Violation:
		return rckm.Emergency, m.BlocksOf(m.Limit)
	case !m.Launches:
		return rckm.Recovery, m.BlocksOf(m.Request)
	case !othersLaunch:
		return rckm.Recovery, grow(m.Tokens)
	}
	return rckm.Contention, m.BlocksOf(m.Request)
}

func publishedBestEffortTokens(p rckm.Pressure, m rckm.Observation) int64 {
	switch p.State {
	case rckm.None:
		return m.BlocksOf(m.Limit)
	case rckm.Emergency:
		return min(m.BlocksOf(m.Request), m.Tokens) * int64(share.Whole) / int64(p.Severity-share.Whole)
	case rckm.Recovery:
		return min(grow(m.Tokens), m.BlocksOf(m.Limit))
	}
	return m.Tokens
}

// grow returns a number of tokens increased by 30 %, and by at least one.
func grow(tokens int64) int64 { return tokens + max(1, tokens*3/10) }

func othersLaunch(members []rckm.Observation, k int) bool {
	for other, m := range members {
		if other != k && m.Launches {
			return true
		}
	}
	return false
}
