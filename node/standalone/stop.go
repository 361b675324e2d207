package standalone

import (
	"context"
	"maps"
	"os"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// maxGrace is the longest grace period of a StopRequest, in seconds: a connection is held meanwhile.
const maxGrace = 3600

// stopPeriod is the time between two checks of whether a run that is stopped has ended.
const stopPeriod = 50 * time.Millisecond

// stop ends the processes of a run of the calling user: with SIGTERM and, if some are left after the grace period, SIGKILL. It returns nil
// once they have ended and the share is free, or when ctx ends, which does not undo SIGTERM.
func (g *granter) stop(ctx context.Context, uid uint32, request control.StopRequest) *control.Refusal {
	if request.GraceSeconds < 0 || request.GraceSeconds > maxGrace {
		return &control.Refusal{Kind: control.Invalid, Field: "grace", Reason: "want 0s to 1h"}
	}
	r, err := g.owned(uid, request.Run)
	if err != nil {
		return refusalOf(err)
	}
	g.Log.Info("run is stopped", "run", r.ID, "name", r.Name, "by", uid)
	told, before := map[started]bool(nil), process.Now()
	late := time.Now().Add(time.Duration(request.GraceSeconds) * time.Second)
	for ctx.Err() == nil {
		if g.runs.isClosed() {
			return refusalOf(errClosed)
		}
		holds := g.runs.isRunning(r)
		if !holds && len(g.server.pids(r, false)) == 0 {
			break
		}
		if time.Now().After(late) {
			g.server.signal(r, syscall.SIGKILL, holds, func(started) bool { return true }) // again and again: they may fork meanwhile
		} else {
			told = g.server.terminate(r, holds, told, before)
		}
		time.Sleep(stopPeriod)
	}
	g.operation.Lock() // under which the share is released to the end
	defer g.operation.Unlock()
	return nil
}

// terminate sends SIGTERM to each process of a run once, and to none that started later, as a program may start others to clean up: told are those
// that have had it, nil in the first call, and before is when that was. A process that is just executing a program has no environment for a
// moment, and is found by a later call. It returns those that have had the signal by now.
func (s *runServer) terminate(r *run, holds bool, told map[started]bool, before uint64) map[started]bool {
	now := map[started]bool{}
	maps.Copy(now, told)
	s.signal(r, syscall.SIGTERM, holds, func(p started) bool {
		now[p] = told == nil || told[p] || p.ticks < before
		return now[p] && !told[p]
	})
	return now
}

// started is a process, told from a later one with its PID.
type started struct {
	pid   int
	ticks uint64 // process.StartTime
}

// signal sends a signal to the processes of a run, as pids finds them, that `to` returns true for. A process gets it only if it belongs to the run
// before and after its handle was opened, since its PID may have been reused.
func (s *runServer) signal(r *run, sig syscall.Signal, holds bool, to func(started) bool) {
	var opened []process.Process
	for pid := range s.pids(r, holds) {
		p, err := process.Open(pid)
		if err != nil { // it has ended
			continue
		}
		if ticks, err := process.StartTime(pid); err == nil && to(started{pid, ticks}) {
			opened = append(opened, p)
		} else {
			p.Close()
		}
	}
	if len(opened) == 0 {
		return
	}
	now := s.pids(r, holds)
	for _, p := range opened {
		if now[p.PID] {
			_ = p.Signal(sig) // fails if it has ended
		}
		p.Close()
	}
}

// pids returns the processes of a run: those of its cgroup or, if it has none, the processes of its user that its environment or a connection
// to the token server identifies. holds says that the run still has its share: after that, its connections tell nothing.
func (s *runServer) pids(r *run, holds bool) map[int]bool {
	all := map[int]bool{}
	groups := []string{r.Cgroup}
	if s.Groups != nil && r.lost {
		groups = s.Groups.find(r.ID)
	}
	if s.Groups != nil && len(groups) > 0 && groups[0] != "" {
		for _, group := range groups {
			for _, pid := range s.Groups.processes(group) {
				all[pid] = true
			}
		}
		return all
	}
	candidates, _ := process.AllStartedWith(s.directoryVariable(r.ID)) // without /proc, the others
	if p, _, err := openIfAlive(r.PID, r.StartTime); err == nil && p != (process.Process{}) {
		p.Close()
		candidates = append(candidates, r.PID)
	}
	if holds && r.container != nil {
		for _, v := range r.container.Status().VGPUs {
			for _, p := range v.Processes {
				candidates = append(candidates, p.PID)
			}
		}
	}
	for _, pid := range candidates {
		// A program that another user's rights are given to (setuid) keeps the environment, and is not the run's to end.
		if uid, err := process.User(pid); err == nil && uint32(uid) == r.UID && pid != os.Getpid() {
			all[pid] = true
		}
	}
	return all
}
