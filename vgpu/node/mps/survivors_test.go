package mps

import (
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// TestSilentBefore: a keeper that finds a daemon which does not answer, or servers that a dead one has left, knows none of their clients. It
// ends neither before the driver has shown the processes on the slice, unless nobody holds it, nor while one of those may be a client.
func TestSilentBefore(t *testing.T) {
	for name, how := range map[string]syscall.Signal{"silent": syscall.SIGSTOP, "dead": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, r *rig) {
				r.shared()
				client, first, server := r.joined(), r.daemon(), r.servers()[0]
				r.Close()
				if how == syscall.SIGKILL {
					r.kills(first)
				} else {
					r.signal(first, how)
				}
				d := r.byHand()
				count := func(want int, when string) {
					t.Helper()
					if l := d.looks(nothing); l.Clients != want || l.Daemon == supervisor.Answers {
						t.Errorf("%s: %+v, want %d clients", when, l, want)
					}
				}
				count(1, "nothing is seen yet")
				r.Hold(nil)
				count(0, "nothing is seen yet, and nobody holds it")
				r.Hold([]Member{small})
				seen := []gpu.Process{{PID: server, Slice: slice}, {PID: client.Process.Pid, Slice: slice}}
				r.Saw(seen)
				count(1, "a client is seen")
				_ = client.Process.Kill()
				<-client.ended
				count(0, "it has ended")
			})
		})
	}
}
