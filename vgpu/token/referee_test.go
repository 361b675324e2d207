package token

import (
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// referee drives a slice as a server and its clients would, and checks the guarantees of the package. A client with work computes
// while it holds a token, and its last kernel overruns the token: until that ends, no client computes that needs the same SMs,
// though it measures its kernels as running.
type referee struct {
	slice   *Slice
	now     time.Duration
	next    time.Duration
	overrun func() time.Duration
	late    func() time.Duration // from a grant to the first kernel; nil for none
	reports bool                 // clients report unfinished work
	pods    []*pod               // present and gone
	last    uint64
	fault   error // the first rule that was broken
}

type pod struct {
	Member
	here, want, live bool
	since            time.Duration // of the token
	blocked          time.Duration // the end of the kernels before its own
	deadline         time.Duration
	ends             time.Duration // of the kernel that overruns
	open             bool          // that kernel was reported
	settled          time.Duration
	busy             []interval // ascending, disjoint
}

func newReferee(c Config, overrun func() time.Duration) (*referee, error) {
	s, err := New(c)
	return &referee{slice: s, next: Never, overrun: overrun}, err
}

func (r *referee) fail(format string, args ...any) {
	if r.fault == nil {
		r.fault = fmt.Errorf("%v: %s", r.now, fmt.Sprintf(format, args...))
	}
}

func (r *referee) join(m Member) *pod {
	p := &pod{Member: m, here: true, settled: r.now, ends: r.now}
	if err := r.slice.Join(r.now, m); err != nil {
		return nil
	}
	r.pods = append(r.pods, p)
	r.advance()
	return p
}

func (r *referee) leave(p *pod) {
	r.stop(p)
	p.here, p.want = false, false
	r.check(r.slice.Leave(r.now, p.ID))
	r.advance()
}

func (r *referee) want(p *pod, want bool) {
	p.want = want
	if want {
		r.check(r.slice.RequestToken(r.now, p.ID))
	} else {
		r.check(r.slice.ReleaseToken(r.now, p.ID))
	}
	r.advance()
}

func (r *referee) check(err error) {
	if err != nil {
		r.fail("%v", err)
	}
}

// until advances the time. Clients are settled when their kernels end and every 5 ms.
func (r *referee) until(end time.Duration) {
	for r.now < end && r.fault == nil {
		next := min(end, r.next, (r.now/settling+1)*settling)
		for _, p := range r.pods {
			if !p.live && p.ends > r.now {
				next = min(next, p.ends)
			}
		}
		if next <= r.now {
			r.fail("wants to be called at %v", r.next)
			return
		}
		r.now = next
		for _, p := range r.pods {
			r.settle(p)
		}
		r.advance()
	}
}

const settling = 5 * time.Millisecond

// settle reports what the client computed since the last settlement.
func (r *referee) settle(p *pod) {
	if !p.here {
		return
	}
	end := r.now
	if !p.live {
		end = min(end, p.ends)
	}
	if p.open && (p.live || p.ends <= r.now) {
		p.open = false
		r.check(r.slice.ReportOpenWork(r.now, p.ID, NoWork))
	}
	busy := time.Duration(0)
	if end > max(p.settled, p.since) && (p.live || p.ends > p.settled) {
		busy = p.work(max(p.settled, p.since), end)
	}
	p.settled = r.now
	r.check(r.slice.Settle(r.now, p.ID, busy))
}

// work returns the device time that the client measures. It computes only once the kernels of others have ended.
func (p *pod) work(from, to time.Duration) time.Duration {
	measured := to - from
	if from = max(from, p.blocked); from >= to {
		return measured
	}
	if n := len(p.busy); n > 0 && p.busy[n-1].to == from {
		p.busy[n-1].to = to
	} else {
		p.busy = append(p.busy, interval{from, to})
	}
	return measured
}

func (r *referee) advance() {
	for _, p := range r.pods {
		if p.here {
			r.settle(p)
		}
	}
	changes, next := r.slice.Advance(r.now)
	r.next = next
	for _, c := range changes {
		k := slices.IndexFunc(r.pods, func(p *pod) bool { return p.here && p.ID == c.ID })
		if k < 0 {
			r.fail("%v of %d, who is not there", c.Kind, c.ID)
			continue
		}
		r.apply(r.pods[k], c)
	}
	for _, p := range r.pods {
		if p.live && p.deadline <= r.now {
			r.fail("%d still has its token of %v", p.ID, p.deadline)
		}
	}
}

func (r *referee) apply(p *pod, c Change) {
	if p.live == (c.Kind == Grant) {
		r.fail("%v of %d, live %v", c.Kind, p.ID, p.live)
	}
	if c.Kind == Revoke {
		r.stop(p)
		return
	}
	if c.Token.Sequence <= r.last-uint64(min(len(r.pods), int(r.last))) || c.Token.Deadline <= r.now || c.Token.Until < c.Token.Deadline || !p.want {
		r.fail("%v of %d: %+v", c.Kind, p.ID, c.Token)
	}
	r.last = max(r.last, c.Token.Sequence)
	if c.Kind == Grant {
		p.blocked = r.overrunning(p)
		p.since = max(r.now, p.ends)
		if p.ends > r.now {
			p.since = r.now
		}
		if r.late != nil {
			p.since += r.late()
		}
	}
	p.live, p.deadline = true, c.Token.Deadline
	r.countSMs()
}

// overrunning returns the end of the last kernel that cannot run beside those of p.
func (r *referee) overrunning(p *pod) (end time.Duration) {
	for _, other := range r.pods {
		if !other.live && other.ends > r.now && other.SM+p.SM > share.Whole {
			end = max(end, other.ends)
		}
	}
	return end
}

func (r *referee) stop(p *pod) {
	if p.live {
		p.live, p.ends = false, r.now+r.overrun()
		if overrun := p.ends - r.now; overrun > 0 && r.reports {
			p.open = true
			open := ShortWork
			if overrun > ms {
				open = LongWork
			}
			r.check(r.slice.ReportOpenWork(r.now, p.ID, open))
		}
	}
}

func (r *referee) countSMs() {
	sum := share.PerMille(0)
	for _, p := range r.pods {
		if p.live {
			sum += p.SM
		}
	}
	if sum > share.Whole {
		r.fail("live tokens hold %v SMs", sum)
	}
}

// got returns the time that the pod computed between two times.
func (p *pod) got(from, to time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, b := range p.busy {
		sum += max(0, min(b.to, to)-max(b.from, from))
	}
	return sum
}

// most and least return the extremes over all spans of a length between two times: both occur where a span begins or ends with a
// piece of work.
func (p *pod) most(length, from, to time.Duration) (most time.Duration) {
	p.spans(length, from, to, func(at time.Duration) { most = max(most, p.got(at, at+length)) })
	return most
}

func (p *pod) least(length, from, to time.Duration) time.Duration {
	least := length
	p.spans(length, from, to, func(at time.Duration) { least = min(least, p.got(at, at+length)) })
	return least
}

func (p *pod) spans(length, from, to time.Duration, look func(at time.Duration)) {
	look(from)
	for _, b := range p.busy {
		for _, at := range []time.Duration{b.from, b.to, b.from - length, b.to - length} {
			if at >= from && at+length <= to {
				look(at)
			}
		}
	}
}
