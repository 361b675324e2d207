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

	"github.com/gshare-dev/gshare/vgpu/share"
)

var (
	small = Member{Slice: slice, Name: "small", SMs: 300, Memory: 512 * share.MiB} // its processes get 1 GiB with a context
	large = Member{Slice: slice, Name: "large", SMs: 600, Memory: 3584 * share.MiB}
)

// measured starts a program that finds out how much of the device it gets, and stays.
func (r *rig) measured(pipe string, environment ...string) (limits string, end func()) {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(r.folder, "limits"))
	cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+r.folder, pipeVariable+pipe), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	input, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
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

// TestHostileClient: what a program says in its environment changes nothing about its part of the SMs where it has a namespace, and
// everything where it has none. Its memory it can only make less, but for the hole that NVIDIA found in driver 615.71: an entry for a device that it
// does not see. The enforcement status says so.
func TestHostileClient(t *testing.T) {
	const percent, memory = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="
	for name, test := range map[string]struct {
		environment []string
		v2, v3      string
	}{
		"nothing":            {nil, "SMs 100, MiB 16384", "SMs 30, MiB 1024"},
		"more":               {[]string{percent + "90", memory + "0=8G"}, "SMs 90, MiB 8192", "SMs 30, MiB 1024"},
		"less":               {[]string{percent + "10", memory + "0=512M"}, "SMs 10, MiB 512", "SMs 30, MiB 512"},
		"the hole of 615.71": {[]string{memory + "0=1024M,1=1G"}, "SMs 100, MiB 16384", "SMs 30, MiB 16384"},
		"as it was told":     {[]string{percent + "30", memory + "0=1024M"}, "SMs 30, MiB 1024", "SMs 30, MiB 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, r *rig) {
				want := test.v2
				if r.driver != "" {
					want = test.v3
				}
				if got, _ := r.measured(r.opensFor(small), test.environment...); got != "error 0, "+want {
					t.Errorf("it gets %s, want %s", got, want)
				}
			})
		})
	}
}

// TestNamespaces: each member has its own pipes and limits, for as long as it is held or has processes.
func TestNamespaces(t *testing.T) {
	r := newRig(t, namespaces)
	pipe, others := r.opensFor(small), r.opensFor(large)
	r.Hold([]Member{small, large})
	if pipe == others || !r.Binds(slice, small.Name) || r.Binds(slice, "nobody") || r.Binds("GPU-8", small.Name) {
		t.Errorf("pipes %s and %s", pipe, others)
	}
	for pipe, want := range map[string]string{pipe: "error 0, SMs 30, MiB 1024", others: "error 0, SMs 60, MiB 4096"} {
		if got, end := r.measured(pipe); got != want {
			t.Errorf("it gets %s, want %s", got, want)
		} else {
			end()
		}
	}
	_, end := r.measured(pipe)
	r.opensFor(small) // who holds the slice may ask again, as a container does that is made anew, and is not waited for when it has gone
	r.Hold([]Member{large})
	again := small
	again.Name = "next"
	r.opensFor(again) // so the keeper has looked
	if !slices.Contains(r.rooms(), small.Name) {
		t.Error("a namespace with a process has gone")
	}
	end()
	r.eventually("it has gone", func() bool { return !slices.Contains(r.rooms(), small.Name) })
	if _, err := os.Stat(pipe); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its pipes are left: %v", err)
	}
}

// TestOtherLimits: a member of the same name with other limits comes when they are set.
func TestOtherLimits(t *testing.T) {
	r := newRig(t, namespaces)
	before := small
	before.SMs = 900
	r.opensFor(before)
	r.Hold([]Member{before})
	if got, _ := r.measured(r.opensFor(small)); got != "error 0, SMs 30, MiB 1024" {
		t.Errorf("it gets %s", got)
	}
}

// rooms are the namespaces that the daemon tells.
func (r *rig) rooms() []string {
	r.t.Helper()
	names, err := r.control(slice).spaces(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestNextKeeper takes over daemon, server and namespaces. What an agent left that was ended halfway is set right, or goes.
func TestNextKeeper(t *testing.T) {
	r := newRig(t, namespaces)
	pipe := r.opensFor(small)
	r.Hold([]Member{small})
	_, end := r.measured(pipe)
	daemon, servers := r.daemon(), r.servers()
	r.Close()
	c := r.control(slice)
	for _, name := range []string{"stray", large.Name} { // neither has limits
		if _, err := c.tell(t.Context(), "namespace", "create", name, "--server="+serverName); err != nil {
			t.Fatal(err)
		}
	}
	r.Keeper = r.keeper(r.Dir)
	r.Hold([]Member{small, large})
	if again := r.opensFor(small); again != pipe {
		t.Errorf("pipes %s, not %s", again, pipe)
	}
	if got, _ := r.measured(r.opensFor(large)); got != "error 0, SMs 60, MiB 4096" {
		t.Errorf("it gets %s", got)
	}
	r.eventually("nothing is left over", func() bool { return slices.Equal(r.rooms(), []string{"default", large.Name, small.Name}) })
	if r.daemon() != daemon || !slices.Equal(r.servers(), servers) {
		t.Error("daemon or server were not taken over")
	}
	end()
}

// TestNamespacesAgain: the next daemon has those of the last one, with their limits, at the same place.
func TestNamespacesAgain(t *testing.T) {
	r := newRig(t, namespaces)
	pipe := r.opensFor(small)
	r.Hold([]Member{small})
	mounted, err := os.Open(pipe) // as a container's mount does, it keeps the directory from being made again in the same place
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	before, err := mounted.Stat()
	if err != nil {
		t.Fatal(err)
	}
	first := r.daemon()
	r.another(first)
	if again := r.opensFor(small); again != pipe || r.daemon() == first {
		t.Errorf("pipes %s, not %s", again, pipe)
	}
	if after, err := os.Stat(pipe); err != nil || !os.SameFile(before, after) {
		t.Errorf("who has the directory mounted does not see the new one (%v)", err)
	}
	if got, _ := r.measured(pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"); got != "error 0, SMs 30, MiB 1024" {
		t.Errorf("it gets %s", got)
	}
}

// TestRefused: a member whose namespace the daemon refuses, at either step, does not come in, and is told why. Others do. A daemon that
// refuses to say what namespaces it has is not ended for it; one that refuses to say whom it serves is no better than a silent one.
func TestRefused(t *testing.T) {
	for _, verb := range []string{"namespace create small", "namespace set small", "server create", "namespace list", "server list", "client list"} {
		t.Run(verb, func(t *testing.T) {
			r := newRig(t, namespaces)
			refuse := filepath.Join(r.log(slice), "refuse")
			if err := errors.Join(os.MkdirAll(r.log(slice), 0o755), os.WriteFile(refuse, []byte(verb), 0o644)); err != nil {
				t.Fatal(err)
			}
			r.eventually("told why", func() bool {
				_, err := r.Open(small)
				return errors.Is(err, ErrClosed) && strings.Contains(fmt.Sprint(err), "refused")
			})
			first := r.daemon()
			ended := verb == "server list" || verb == "client list" // and so it has no clients that are known
			if strings.HasSuffix(verb, small.Name) {
				r.opensFor(large)
			}
			if err := os.Remove(refuse); err != nil {
				t.Fatal(err)
			}
			if got, _ := r.measured(r.opensFor(small)); got != "error 0, SMs 30, MiB 1024" || r.daemon() != first && !ended {
				t.Errorf("it gets %s of daemon %d, which was %d", got, r.daemon(), first)
			}
		})
	}
}

// TestBetweenTheSteps: who comes by pipes that it has while its namespace is being made again has no limits, and its work ends, also
// where the agent is killed meanwhile.
func TestBetweenTheSteps(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint(killed), func(t *testing.T) {
			r := newRig(t, namespaces)
			pipe := r.opensFor(small)
			r.Hold([]Member{small})
			refuse := filepath.Join(r.log(slice), "refuse")
			if err := os.WriteFile(refuse, []byte("namespace set"), 0o644); err != nil {
				t.Fatal(err)
			}
			r.signal(r.daemon(), syscall.SIGKILL)
			r.eventually("half of it", func() bool {
				_, err := r.Open(small)
				return err != nil && strings.Contains(err.Error(), "refused")
			})
			if killed {
				r.Close()
			}
			early := r.client(pipeVariable + pipe)
			r.eventually("a client", func() bool { return r.knows(early.Process.Pid) })
			if err := os.Remove(refuse); err != nil {
				t.Fatal(err)
			}
			if killed {
				r.Keeper = r.keeper(r.Dir)
				r.Hold([]Member{small})
			}
			r.opensFor(small)
			r.eventually("its end", func() bool { return !early.alive() })
			late := r.client(pipeVariable + pipe)
			r.eventually("a client", func() bool { return r.knows(late.Process.Pid) && late.alive() })
			if r.control(slice).begun(small.Name) {
				t.Error("the namespace is not finished")
			}
		})
	}
}

// TestProtocolStays: an older daemon is not replaced under its members, nor is the one after it another, as they have its pipes; when they have
// gone, the next has namespaces. Inside of MIG instances none has.
func TestProtocolStays(t *testing.T) {
	r := newRig(t, "")
	r.Hold(members)
	old := r.opensFor(member)
	first := r.daemon()
	r.Close()
	r.driver = namespaces
	r.Keeper = r.keeper(r.Dir)
	r.Hold(members)
	if pipe := r.opensFor(member); pipe != old || r.daemon() != first || r.Binds(slice, member.Name) {
		t.Errorf("pipes %s, not %s", pipe, old)
	}
	r.another(first)
	if pipe := r.opensFor(member); pipe != old || r.Binds(slice, member.Name) {
		t.Errorf("pipes %s, not %s", pipe, old)
	}
	r.Hold(members) // whoever has asked has come
	r.Hold(nil)
	r.eventually("no daemon", func() bool {
		daemons, _ := r.control(slice).processes()
		return len(daemons) == 0
	})
	if pipe := r.opensFor(small); pipe == old || !r.Binds(slice, small.Name) {
		t.Errorf("pipes %s without a namespace", pipe)
	}
	mig := newDaemon(r.Keeper, "MIG-0")
	if has, err := mig.choose(t.Context()); has || err != nil {
		t.Errorf("a MIG instance has namespaces (%v)", err)
	}
}

// TestRemembers: the daemon that is there says what the next one is, and no note that another agent has left: members have its pipes.
func TestRemembers(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		own := r.opensFor(small)
		first := r.daemon()
		r.Hold([]Member{small})
		r.Close()
		other := r.control(slice)
		other.namespaces = !other.namespaces
		if err := other.remember(); err != nil {
			t.Fatal(err)
		}
		r.driver = namespaces
		r.Keeper = r.keeper(r.Dir)
		r.Hold([]Member{small})
		r.opensFor(small)
		r.another(first)
		if pipe := r.opensFor(small); pipe != own {
			t.Errorf("pipes %s, not %s", pipe, own)
		}
	})
}

// TestPlain: where namespaces are not wanted no new daemon has them; one that was started with them keeps them while it has members, and so
// does its successor.
func TestPlain(t *testing.T) {
	r := newRig(t, namespaces)
	old := r.opensFor(member)
	r.Hold(members)
	r.Close()
	r.Keeper = r.keeperOf(Daemons{Dir: r.Dir, Plain: true})
	r.Hold(members)
	r.opensFor(member)
	r.another(r.daemon())
	if pipe := r.opensFor(member); pipe != old || !r.Binds(slice, member.Name) {
		t.Errorf("pipes %s, not %s", pipe, old)
	}
	r.Hold(members)
	r.Hold(nil)
	r.eventually("no daemon", func() bool {
		daemons, _ := r.control(slice).processes()
		return len(daemons) == 0
	})
	if pipe := r.opensFor(small); pipe != r.Pipe(slice) || r.Binds(slice, small.Name) {
		t.Errorf("pipes %s with a namespace", pipe)
	}
}
