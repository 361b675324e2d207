package mps

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/test/executable"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var (
	small = Member{Slice: slice, Name: "small", SMs: 300, Memory: 537 * share.MiB} // 1 GiB for each process, with its context
	large = Member{Slice: slice, Name: "large", SMs: 600, Memory: 3379 * share.MiB}
)

// measureLimits starts a program that prints its limits on the device and then stays connected until end is called.
func (r *rig) measureLimits(pipe string, environment ...string) (limits string, end func()) {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(r.folder, "limits"))
	cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+r.folder, pipeVariable+pipe), environment...)
	input, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := executable.Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	limits, err = bufio.NewReader(output).ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	end = func() {
		input.Close()
		_ = cmd.Wait()
	}
	r.t.Cleanup(end)
	return strings.TrimSpace(limits), end
}

// TestHostileClient: the environment of a program determines its part of the SMs only where it has no namespace. It can only lower its
// memory, except for the hole that NVIDIA found in driver 615.71: an entry for a device that the program does not see. The enforcement
// status of the share reports that hole.
func TestHostileClient(t *testing.T) {
	const percent, memory = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="
	for name, test := range map[string]struct {
		environment []string
		v2, v3      string
	}{
		"no limits":          {nil, "SMs 100, MiB 16384", "SMs 30, MiB 1024"},
		"more":               {[]string{percent + "90", memory + "0=8G"}, "SMs 90, MiB 8192", "SMs 30, MiB 1024"},
		"less":               {[]string{percent + "10", memory + "0=512M"}, "SMs 10, MiB 512", "SMs 30, MiB 512"},
		"the hole of 615.71": {[]string{memory + "0=1024M,1=1G"}, "SMs 100, MiB 16384", "SMs 30, MiB 16384"},
		"the right limits":   {[]string{percent + "30", memory + "0=1024M"}, "SMs 30, MiB 1024", "SMs 30, MiB 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			forVersions(t, func(t *testing.T, r *rig) {
				want := test.v2
				if r.driver == driver615 {
					want = test.v3
				}
				if got, _ := r.measureLimits(r.openFor(small), test.environment...); got != "error 0, "+want {
					t.Errorf("got limits %s, want %s", got, want)
				}
			})
		})
	}
}

// TestNamespaces: each member has its own pipe directory and limits, as long as it is a member or has processes.
func TestNamespaces(t *testing.T) {
	r := newRig(t, driver615)
	pipe, others := r.openFor(small), r.openFor(large)
	r.SetMembers([]Member{small, large})
	if pipe == others || !r.HasNamespace(slice, small.Name) || r.HasNamespace(slice, "nobody") || r.HasNamespace("GPU-8", small.Name) {
		t.Errorf("got pipe directories %s and %s", pipe, others)
	}
	for pipe, want := range map[string]string{pipe: "error 0, SMs 30, MiB 1024", others: "error 0, SMs 60, MiB 4096"} {
		if got, end := r.measureLimits(pipe); got != want {
			t.Errorf("got limits %s, want %s", got, want)
		} else {
			end()
		}
	}
	_, end := r.measureLimits(pipe)
	r.openFor(small) // a member may call Open again, as for a container that restarts, and does not become pending by it
	r.SetMembers([]Member{large})
	again := small
	again.Name = "next"
	r.openFor(again) // and so an iteration has passed
	if !slices.Contains(r.namespaceNames(), small.Name) {
		t.Error("a namespace with a process was deleted")
	}
	end()
	r.waitFor("the namespace to be deleted", func() bool { return !slices.Contains(r.namespaceNames(), small.Name) })
	if _, err := os.Stat(pipe); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its pipe directory was not removed: %v", err)
	}
}

// TestChangedLimits: the slice opens for a member with changed limits once they are set.
func TestChangedLimits(t *testing.T) {
	r := newRig(t, driver615)
	before := small
	before.SMs = 900
	r.openFor(before)
	r.SetMembers([]Member{before})
	if got, _ := r.measureLimits(r.openFor(small)); got != "error 0, SMs 30, MiB 1024" {
		t.Errorf("got limits %s", got)
	}
}

// namespaceNames returns the names of the namespaces that the daemon lists.
func (r *rig) namespaceNames() []string {
	r.t.Helper()
	names, err := r.control(slice).listNamespaces(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestNextManager: the next manager takes over daemon, server and namespaces. It completes or deletes what a killed agent left unfinished.
func TestNextManager(t *testing.T) {
	r := newRig(t, driver615)
	pipe := r.openFor(small)
	r.SetMembers([]Member{small})
	_, end := r.measureLimits(pipe)
	daemon, servers := r.daemon(), r.servers()
	r.Close()
	c := r.control(slice)
	for _, name := range []string{"stray", large.Name} { // without limits
		if _, err := c.commandV3(t.Context(), "namespace", "create", name, "--server="+serverName); err != nil {
			t.Fatal(err)
		}
	}
	r.Manager = r.newManager(Daemons{Dir: r.Dir})
	r.SetMembers([]Member{small, large})
	if again := r.openFor(small); again != pipe {
		t.Errorf("got pipe directory %s, want %s", again, pipe)
	}
	if got, _ := r.measureLimits(r.openFor(large)); got != "error 0, SMs 60, MiB 4096" {
		t.Errorf("got limits %s", got)
	}
	r.waitFor("the stray namespace to be deleted", func() bool { return slices.Equal(r.namespaceNames(), []string{"default", large.Name, small.Name}) })
	if r.daemon() != daemon || !slices.Equal(r.servers(), servers) {
		t.Error("daemon or server were replaced")
	}
	end()
}

// TestNamespacesOfNextDaemon: the next daemon has the namespaces of the last one, with their limits, in the same directories.
func TestNamespacesOfNextDaemon(t *testing.T) {
	r := newRig(t, driver615)
	pipe := r.openFor(small)
	r.SetMembers([]Member{small})
	mounted, err := os.Open(pipe) // like a container's mount, this keeps the inode from being reused
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	before, err := mounted.Stat()
	if err != nil {
		t.Fatal(err)
	}
	first := r.daemon()
	r.replaceDaemon()
	if again := r.openFor(small); again != pipe || r.daemon() == first {
		t.Errorf("got pipe directory %s, want %s", again, pipe)
	}
	if after, err := os.Stat(pipe); err != nil || !os.SameFile(before, after) {
		t.Errorf("the mounted directory was replaced (%v)", err)
	}
	if got, _ := r.measureLimits(pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"); got != "error 0, SMs 30, MiB 1024" {
		t.Errorf("got limits %s", got)
	}
}

// TestRefused: if the daemon refuses a member's namespace, at either step, Open fails for that member with the reason, and works for
// others. A daemon that refuses to list its namespaces is not replaced; one that refuses to list its clients is treated as silent.
func TestRefused(t *testing.T) {
	for _, verb := range []string{"namespace create small", "namespace set small", "server create", "namespace list", "server list", "client list"} {
		t.Run(verb, func(t *testing.T) {
			r := newRig(t, driver615)
			refuse := filepath.Join(r.logDir(slice), "refuse")
			if err := errors.Join(os.MkdirAll(r.logDir(slice), 0o755), os.WriteFile(refuse, []byte(verb), 0o644)); err != nil {
				t.Fatal(err)
			}
			r.waitFor("the reason", func() bool {
				_, err := r.Open(small)
				return errors.Is(err, ErrClosed) && strings.Contains(fmt.Sprint(err), "refused")
			})
			replaced := verb == "server list" || verb == "client list" // again and again, as it has no known clients
			first := 0
			if !replaced {
				first = r.daemon()
			}
			if strings.HasSuffix(verb, small.Name) {
				r.openFor(large)
			}
			if err := os.Remove(refuse); err != nil {
				t.Fatal(err)
			}
			if got, _ := r.measureLimits(r.openFor(small)); got != "error 0, SMs 30, MiB 1024" || !replaced && r.daemon() != first {
				t.Errorf("got limits %s of daemon %d, which was %d", got, r.daemon(), first)
			}
		})
	}
}

// TestUnlimitedClient: a process that connects after its namespace has been created and before the limits are set is unlimited, and its
// work is terminated, also if the agent is restarted in between.
func TestUnlimitedClient(t *testing.T) {
	for name, restarted := range map[string]bool{"same agent": false, "restarted agent": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, driver615)
			pipe := r.openFor(small)
			r.SetMembers([]Member{small})
			refuse := filepath.Join(r.logDir(slice), "refuse")
			if err := os.WriteFile(refuse, []byte("namespace set"), 0o644); err != nil {
				t.Fatal(err)
			}
			r.signal(r.daemon(), syscall.SIGKILL)
			r.waitFor("the limits to be refused", func() bool {
				_, err := r.Open(small)
				return err != nil && strings.Contains(err.Error(), "refused")
			})
			if restarted {
				r.Close()
			}
			unlimited := r.startClient(pipeVariable + pipe)
			r.waitForClient(unlimited)
			if err := os.Remove(refuse); err != nil {
				t.Fatal(err)
			}
			if restarted {
				r.Manager = r.newManager(Daemons{Dir: r.Dir})
				r.SetMembers([]Member{small})
			}
			r.openFor(small)
			r.waitFor("the unlimited client to end", func() bool { return !unlimited.alive() })
			limited := r.startClient(pipeVariable + pipe)
			r.waitFor("the next client", func() bool { return r.lists(limited.Process.Pid) && limited.alive() })
			if r.control(slice).isMarkedUnlimited(small.Name) {
				t.Error("the namespace still counts as unlimited")
			}
		})
	}
}

// TestVersionStays: while the members of a slice use the pipe directories of a v2 daemon, that daemon stays, and its successor is of v2
// too. Without members, the next daemon has namespaces. In MIG instances none has.
func TestVersionStays(t *testing.T) {
	r := newRig(t, "")
	r.SetMembers(members)
	old := r.openFor(member)
	first := r.daemon()
	r.Close()
	r.driver = driver615
	r.Manager = r.newManager(Daemons{Dir: r.Dir})
	r.SetMembers(members)
	if pipe := r.openFor(member); pipe != old || r.daemon() != first || r.HasNamespace(slice, member.Name) {
		t.Errorf("got pipe directory %s, want %s", pipe, old)
	}
	r.replaceDaemon()
	if pipe := r.openFor(member); pipe != old || r.HasNamespace(slice, member.Name) {
		t.Errorf("got pipe directory %s, want %s", pipe, old)
	}
	r.SetMembers(members) // none is pending any more
	r.SetMembers(nil)
	r.waitForNoDaemon()
	if pipe := r.openFor(small); pipe == old || !r.HasNamespace(slice, small.Name) {
		t.Errorf("got pipe directory %s without a namespace", pipe)
	}
	mig := newDaemon(r.Manager, "MIG-0")
	if has, err := mig.nextIsVersion3(t.Context()); has || err != nil {
		t.Errorf("the daemon of a MIG instance gets namespaces (%v)", err)
	}
}

// TestVersionOfRunningDaemon: the next daemon has the version of the running one, whatever version another agent has recorded.
func TestVersionOfRunningDaemon(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		own := r.openFor(small)
		r.SetMembers([]Member{small})
		r.Close()
		other := r.control(slice)
		other.isVersion3 = !other.isVersion3
		if err := other.recordVersion(); err != nil {
			t.Fatal(err)
		}
		r.driver = driver615
		r.Manager = r.newManager(Daemons{Dir: r.Dir})
		r.SetMembers([]Member{small})
		r.openFor(small)
		r.replaceDaemon()
		if pipe := r.openFor(small); pipe != own {
			t.Errorf("got pipe directory %s, want %s", pipe, own)
		}
	})
}

// TestNoNamespaces: with NoNamespaces no new daemon has them. One that was started with them keeps them while it has members, and so does
// its successor.
func TestNoNamespaces(t *testing.T) {
	r := newRig(t, driver615)
	old := r.openFor(member)
	r.SetMembers(members)
	r.Close()
	r.Manager = r.newManager(Daemons{Dir: r.Dir, NoNamespaces: true})
	r.SetMembers(members)
	r.openFor(member)
	r.replaceDaemon()
	if pipe := r.openFor(member); pipe != old || !r.HasNamespace(slice, member.Name) {
		t.Errorf("got pipe directory %s, want %s", pipe, old)
	}
	r.SetMembers(members)
	r.SetMembers(nil)
	r.waitForNoDaemon()
	if pipe := r.openFor(small); pipe != r.ClientDir(slice) || r.HasNamespace(slice, small.Name) {
		t.Errorf("got pipe directory %s with a namespace", pipe)
	}
}
