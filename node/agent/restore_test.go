package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/lease"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// containerPath returns the name of a file in the directory that the container main of a pod has mounted.
func (r *fixture) containerPath(uid, name string) string {
	return filepath.Join(r.dir, "grants", grant.Owner{UID: types.UID(uid), Container: "main"}.ID(), name)
}

// TestUndecodableRecord: an agent that cannot decode the record of a grant makes the grant again from the kubelet's records, in the directory
// that the running container has mounted. The directory of a container that is gone is removed.
func TestUndecodableRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		record  func(text string) string
		damage  func(path string) error // what is there in place of the record
		options func(*testing.T) func(*Options)
	}{
		"a directory":            {damage: func(path string) error { return os.MkdirAll(filepath.Join(path, "a"), 0o755) }},
		"a FIFO":                 {damage: func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		"a socket":               {damage: func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) }},
		"endless":                {damage: func(path string) error { return os.Symlink("/dev/zero", path) }},
		"a loop":                 {damage: func(path string) error { return os.Symlink(path, path) }},
		"huge":                   {damage: func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) }},
		"torn":                   {record: func(text string) string { return text[:len(text)/2] }},
		"of a later version":     {record: func(text string) string { return strings.Replace(text, `"version":1`, `"version":9`, 1) }},
		"of another container":   {record: func(text string) string { return strings.Replace(text, `"uid":"a"`, `"uid":"b"`, 1) }},
		"while MPS is not found": {record: func(string) string { return "" }, options: func(t *testing.T) func(*Options) { return withMPS(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var options []func(*Options)
			if test.options != nil {
				options = append(options, test.options(t))
			}
			r := newFixture(t, options...)
			r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
			r.mustCreate("gone", r.pod("gone", "GPU-1", 60, 70), "GPU-1")
			r.stop()
			mounted, err := os.Stat(r.containerPath("a", ""))
			if err != nil {
				t.Fatal(err)
			}
			for _, uid := range []string{"a", "gone"} {
				path := r.containerPath(uid, recordName)
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if test.damage != nil {
					err = errors.Join(os.Remove(path), test.damage(path))
				} else {
					err = os.WriteFile(path, []byte(test.record(string(text))), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r.kubelet.RemovePod("gone")
			r.start()
			r.wait("grant and removal", func() bool { return slices.Equal(r.grants(), []string{"pod-a"}) && r.left("grants") == 1 })
			if now, err := os.Stat(r.containerPath("a", "")); err != nil || !os.SameFile(mounted, now) {
				t.Errorf("the container has another directory mounted than the one that is served (%v)", err)
			}
			if _, err := os.Stat(r.containerPath("a", tokenserver.SocketName)); err != nil {
				t.Error(err)
			}
			if got := r.record("a"); got.Name != "pod-a" {
				t.Errorf("the record is %+v", got)
			}
		})
	}
}

// TestLeaseOnRecord: an agent starts at once and serves all containers although a process of one of them holds a lease on its record.
func TestLeaseOnRecord(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
	r.mustCreate("b", r.pod("b", "GPU-1", 60, 70), "GPU-1")
	r.stop()
	lease.Hold(t, r.containerPath("a", recordName))
	began := time.Now()
	r.start()
	r.wait("grants", func() bool { return len(r.grants()) == 2 && len(r.granter.grants.unserved()) == 0 })
	if took := time.Since(began); took > 30*time.Second { // the kernel ends the lease after 45
		t.Errorf("the agent has waited %v for the lease", took)
	}
}

// TestAdoptedLater: a running container whose grant is lost while its MPS daemon cannot be started is granted its share once it can.
func TestAdoptedLater(t *testing.T) {
	t.Parallel()
	r := newFixture(t, withMPS(t))
	r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
	daemon := r.daemon("GPU-0")
	if daemon == 0 {
		t.Fatal("no daemon runs")
	}
	r.stop()
	program := r.MPS.Program
	if err := errors.Join(
		os.WriteFile(r.containerPath("a", recordName), nil, 0o600), os.Rename(program, program+".away"), syscall.Kill(daemon, syscall.SIGKILL),
	); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wait("end of the adoption", func() bool { return r.cluster.hasEvent("pod-a " + string(grant.DoesNotFit)) })
	if got := r.grants(); len(got) > 0 {
		t.Fatalf("granted %v without a daemon", got)
	}
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	r.wait("grant", func() bool { return slices.Equal(r.grants(), []string{"pod-a"}) })
}

// TestAdoptionFails: a container whose grant cannot be set up again after its record could not be decoded keeps the directory that it has
// mounted, and its share, and is served once that is possible.
func TestAdoptionFails(t *testing.T) {
	t.Parallel()
	for name, blocked := range map[string]string{"no record": recordName, "no policy file": tokenserver.PolicyName} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
			r.stop()
			mounted, err := os.Stat(r.containerPath("a", ""))
			if err != nil {
				t.Fatal(err)
			}
			blocker := r.containerPath("a", blocked) + ".next"              // as this is a directory, the file cannot be written
			lost := os.Remove(r.containerPath("a", tokenserver.PolicyName)) // if it was there, it would not be written
			if err := errors.Join(lost, os.WriteFile(r.containerPath("a", recordName), nil, 0o600), os.Mkdir(blocker, 0o755)); err != nil {
				t.Fatal(err)
			}
			r.start()
			r.wait("end of the adoption", func() bool { return r.cluster.hasEvent("pod-a GPUShareNotServed") })
			if now, err := os.Stat(r.containerPath("a", "")); err != nil || !os.SameFile(mounted, now) {
				t.Fatalf("the container has another directory mounted than the one that will be served (%v)", err)
			}
			r.wait("enforcement status", func() bool { return r.enforced("a", enforcement.Unserved) })
			if err := os.Remove(blocker); err != nil {
				t.Fatal(err)
			}
			r.wait("service", func() bool {
				signal(r.granter.wake)
				return len(r.grants()) == 1 && len(r.granter.grants.unserved()) == 0
			})
			if now, err := os.Stat(r.containerPath("a", "")); err != nil || !os.SameFile(mounted, now) {
				t.Errorf("the container has another directory mounted than the one that is served (%v)", err)
			}
			if got := r.record("a"); got.Name != "pod-a" {
				t.Errorf("the record is %+v", got)
			}
		})
	}
}

// TestShortageAtRestore: an agent that lacks descriptors does not start, rather than take records that it cannot open for damaged ones.
func TestShortageAtRestore(t *testing.T) {
	for _, err := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if !isShortage(&os.PathError{Op: "open", Err: err}) {
			t.Errorf("%v", err)
		}
	}
	for _, err := range []error{unix.EIO, unix.ELOOP, unix.EACCES, os.ErrNotExist} {
		if isShortage(err) {
			t.Errorf("%v", err)
		}
	}
}

// TestServedLater: a container that a new agent cannot serve says so in its enforcement status, and is served once that is possible. Until
// then it keeps its directory, even if the kubelet starts it again.
func TestServedLater(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.instance("a") // so that sweeps are frequent
	r.stop()
	policy, socket := r.containerPath("a", tokenserver.PolicyName), r.containerPath("a", tokenserver.SocketName)
	if err := errors.Join(os.Remove(policy), os.RemoveAll(socket)); err != nil {
		t.Fatal(err)
	}
	for _, blocker := range []string{policy + ".next", socket} { // as there is a directory, the file cannot be created
		if err := os.Mkdir(blocker, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	r.wait("enforcement status", func() bool { return r.enforced("a", enforcement.Unserved) })
	r.wait("end of the adoption", func() bool { return r.cluster.hasEvent("pod-a GPUShareNotServed") })
	if err := os.Remove(policy + ".next"); err != nil {
		t.Fatal(err)
	}
	r.wait("policy file", func() bool { _, err := os.Stat(policy); return err == nil })
	if err := r.kubelet.Create(r.ctx, "a", "main"); err == nil {
		t.Error("a container whose socket cannot be opened is started")
	}
	if got := r.record("a"); got.Name != "pod-a" {
		t.Errorf("the record is %+v", got)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	r.wait("socket", func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode().Type() == os.ModeSocket
	})
	r.wait("enforcement status", func() bool { return !r.enforced("a", enforcement.Unserved) })
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
}

// TestUnservedIsLoggedOnce: an agent starts although a container's socket cannot be opened, and logs that once, however often it tries again.
func TestUnservedIsLoggedOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
	r.stop()
	socket := r.containerPath("a", tokenserver.SocketName)
	if err := errors.Join(os.RemoveAll(socket), os.Mkdir(socket, 0o755)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	o := *r.Options
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	next, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.slices.Close)
	if err := next.granter.restore(); err != nil {
		t.Error(err)
	}
	sweeper := &sweeper{Options: next.Options, granter: next.granter}
	for range 3 {
		sweeper.serveUnserved()
	}
	if got := strings.Count(log.String(), "level=WARN") + strings.Count(log.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d times in the log:\n%s", got, log.String())
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	sweeper.serveUnserved()
	if left := next.granter.grants.unserved(); len(left) > 0 {
		t.Errorf("not served: %v", left)
	}
}

// TestStrayFile: an agent ignores a file among the directories of grants.
func TestStrayFile(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.stop()
	if err := os.WriteFile(filepath.Join(r.dir, "grants", "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.granter.restore(); err != nil {
		t.Error(err)
	}
}
