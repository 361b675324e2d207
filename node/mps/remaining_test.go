package mps

import (
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// TestUnknownClients: a manager that finds a daemon which does not answer, or the servers of one that was killed, does not know their
// clients. It must end neither before the driver has listed the slice's processes, unless the slice has no members, nor while one of
// those processes may be a client.
func TestUnknownClients(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"silent": syscall.SIGSTOP, "dead": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			forVersions(t, func(t *testing.T, r *rig) {
				r.share()
				client, first, server := r.connect(), r.daemon(), r.servers()[0]
				r.Close()
				if signal == syscall.SIGKILL {
					r.kill(first)
				} else {
					r.signal(first, signal)
				}
				d := r.manualDaemon()
				d.CommandTimeout = 100 * time.Millisecond // the daemon answers none of the commands
				check := func(want int, when string) {
					t.Helper()
					if o := d.iterate(nil); o.Clients != want || o.Daemon == supervisor.Answers {
						t.Errorf("%s: got %+v, want %d clients", when, o, want)
					}
				}
				check(1, "before the processes are known")
				r.SetMembers(nil)
				check(0, "before the processes are known, without members")
				r.SetMembers([]Member{small})
				r.ObserveProcesses([]gpu.Process{{PID: server, Slice: slice}, {PID: client.Process.Pid, Slice: slice}})
				check(1, "when a client is known")
				_ = client.Process.Kill()
				<-client.ended
				check(0, "when the client has ended")
			})
		})
	}
}
