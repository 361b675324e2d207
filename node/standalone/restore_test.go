package standalone

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// recordDamages are kinds of damage to the file with the record of a run, after which it cannot be read.
var recordDamages = map[string]func(file string, text []byte) error{
	"truncated":     func(file string, text []byte) error { return os.WriteFile(file, text[:100], 0o600) },
	"empty":         func(file string, _ []byte) error { return os.WriteFile(file, nil, 0o600) },
	"zeros":         func(file string, text []byte) error { return os.WriteFile(file, make([]byte, len(text)), 0o600) },
	"garbage":       func(file string, _ []byte) error { return os.WriteFile(file, []byte("\xff\xfe\x00{[\""), 0o600) },
	"unknown field": replaceIn(`"version":1,`, `"version":1,"colour":"red",`),
	"no version":    replaceIn(`"version":1,`, ``),
	"wrong types":   replaceIn(`"devices":["GPU-0"]`, `"devices":{"GPU-0":1}`),
	"out of range":  replaceIn(`"sm":600`, `"sm":-600`),
	"another's":     replaceIn(`"id":"`, `"id":"x`),
	"no PID":        replaceIn(`"pid":`, `"pid":-`),
	"deleted":       func(string, []byte) error { return nil },
	"directory":     func(file string, _ []byte) error { return os.Mkdir(file, 0o755) },
	"full directory": func(file string, _ []byte) error {
		return os.MkdirAll(filepath.Join(file, "a", "b"), 0o755)
	},
	"FIFO":         func(file string, _ []byte) error { return unix.Mkfifo(file, 0o600) },
	"socket":       func(file string, _ []byte) error { return unix.Mknod(file, unix.S_IFSOCK|0o600, 0) },
	"device":       func(file string, _ []byte) error { return unix.Mknod(file, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
	"endless":      func(file string, _ []byte) error { return os.Symlink("/dev/zero", file) },
	"loop of link": func(file string, _ []byte) error { return os.Symlink(file, file) },
	"dangling":     func(file string, _ []byte) error { return os.Symlink("/nonexistent/file", file) },
	"huge": func(file string, text []byte) error { // sparse
		return errors.Join(os.WriteFile(file, text, 0o600), os.Truncate(file, 1<<40))
	},
}

func replaceIn(old, new string) func(file string, text []byte) error {
	return func(file string, text []byte) error {
		if !bytes.Contains(text, []byte(old)) {
			return errors.New("the record has no " + old)
		}
		return os.WriteFile(file, bytes.Replace(text, []byte(old), []byte(new), 1), 0o600)
	}
}

// damaged is a node with one device and two runs, of which the first is to be damaged while no agent runs.
type damaged struct {
	dir, run, copy string   // the directories of the node and of the run, and the second copy of the run's record
	program        *program // that asked for the run
	child          *program // has the environment of the run
	other          string   // the directory of the other run
}

func newDamaged(t *testing.T, change ...func(*Options)) *damaged {
	t.Helper()
	d := &damaged{dir: tempDir(t), program: newProgram(t)}
	n := d.start(t, change...)
	grant := mustAdmit(t, n, d.program, ask(60, 60, 1024))
	d.run, d.copy = grant.Dir, n.server.copyOf(grant.ID)
	d.child = startProgram(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), "GSHARE_DIR="+grant.Dir) })
	d.other = mustAdmit(t, n, newProgram(t), ask(20, 20, 1024)).Dir
	n.Close()
	return d
}

func (d *damaged) start(t *testing.T, change ...func(*Options)) *Node {
	t.Helper()
	return newNode(t, d.dir, append(change, func(o *Options) {
		o.Devices = o.Devices[:1]
		o.timing.lease, o.timing.period = 20*time.Millisecond, 50*time.Millisecond
	})...)
}

// damageRecord damages one of the two copies of the record.
func damageRecord(t *testing.T, file string, damage func(file string, text []byte) error) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.Remove(file)
	}
	if err := errors.Join(err, damage(file, text)); errors.Is(err, unix.EPERM) {
		t.Skip("needs root: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// check checks that the next agent starts at once, serves the other run, and keeps the room of the damaged one while it has processes. served
// tells whether the damaged one is served, too. In the end, nothing of it is left.
func (d *damaged) check(t *testing.T, served bool) {
	t.Helper()
	began := time.Now()
	n := d.start(t)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the agent has started after %v", took)
	}
	d.dial(t, d.other)
	d.keepsRoom(t, n)
	if c, err := tokenclient.Dial(d.run, 0); (err == nil) != served {
		t.Errorf("a process of the damaged run: %v", err)
	} else if err == nil {
		c.Close()
	}
	d.program.end()
	if !served {
		time.Sleep(2 * n.timing.period)
		d.keepsRoom(t, n) // the child lives
	}
	d.child.end()
	eventually(t, "the room is free", func() bool { return !slices.Contains(runIDs(n), filepath.Base(d.run)) })
	mustAdmit(t, n, newProgram(t), ask(60, 60, 1024))
	for _, file := range []string{d.run, d.copy} {
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", file, err)
		}
	}
}

func (d *damaged) dial(t *testing.T, dir string) {
	t.Helper()
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		t.Errorf("the other run is not served: %v", err)
		return
	}
	c.Close()
}

func (d *damaged) keepsRoom(t *testing.T, n *Node) {
	t.Helper()
	if ids := runIDs(n); len(ids) != 2 || !slices.Contains(ids, filepath.Base(d.run)) {
		t.Errorf("the runs are %v", ids)
	}
	if _, refusal := newProgram(t).admit(n, ask(60, 60, 1024)); refusal == nil {
		t.Error("its room is given to another run")
	}
}

func runIDs(n *Node) (ids []string) {
	for _, r := range n.Status().Runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestDamagedRecord: a run of which one copy of the record is damaged is served as before. If both are, it keeps its room until its processes have
// ended. All other runs are served.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range recordDamages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for which, test := range map[string]struct {
				files  func(d *damaged) []string
				served bool
			}{
				"first":  {func(d *damaged) []string { return []string{filepath.Join(d.run, recordName)} }, true},
				"second": {func(d *damaged) []string { return []string{d.copy} }, true},
				"both":   {func(d *damaged) []string { return []string{filepath.Join(d.run, recordName), d.copy} }, false},
			} {
				t.Run(which, func(t *testing.T) {
					t.Parallel()
					d := newDamaged(t)
					for _, file := range test.files(d) {
						damageRecord(t, file, damage)
					}
					d.check(t, test.served)
				})
			}
		})
	}
}

// TestDamagedDirectory: damage to the other files of a run keeps no other run from being served, and costs the run no room.
func TestDamagedDirectory(t *testing.T) {
	replace := func(name string, by func(file string, text []byte) error) func(*damaged) error {
		return func(d *damaged) error {
			file := filepath.Join(d.run, name)
			return errors.Join(os.RemoveAll(file), by(file, nil))
		}
	}
	all := func(steps ...func(*damaged) error) func(*damaged) error {
		return func(d *damaged) (err error) {
			for _, step := range steps {
				err = errors.Join(err, step(d))
			}
			return err
		}
	}
	nothing, directory, text := recordDamages["deleted"], recordDamages["directory"], recordDamages["empty"]
	fifo, full := recordDamages["FIFO"], recordDamages["full directory"]
	loseRecords := all(replace(recordName, nothing), func(d *damaged) error { return os.Remove(d.copy) })
	for name, test := range map[string]struct {
		damage func(*damaged) error
		served bool
	}{
		"directory deleted":             {replace("", nothing), true},
		"directory is a file":           {func(d *damaged) error { return errors.Join(os.RemoveAll(d.run), os.WriteFile(d.run, nil, 0o600)) }, false},
		"sessions deleted":              {replace("sessions", nothing), true},
		"sessions is a file":            {replace("sessions", text), false},
		"sessions is a FIFO":            {replace("sessions", fifo), false},
		"socket deleted":                {replace(tokenserver.SocketName, nothing), true},
		"socket is a directory":         {replace(tokenserver.SocketName, directory), false},
		"socket is a file":              {replace(tokenserver.SocketName, text), false},
		"policy deleted":                {replace(tokenserver.PolicyName, nothing), true},
		"policy empty":                  {replace(tokenserver.PolicyName, text), true},
		"policy is a FIFO":              {replace(tokenserver.PolicyName, fifo), true},
		"policy is a directory":         {replace(tokenserver.PolicyName, full), false},
		"policy cannot be written":      {replace(tokenserver.PolicyName+".next", directory), true},
		"policy lost, not written":      {all(replace(tokenserver.PolicyName, nothing), replace(tokenserver.PolicyName+".next", directory)), false},
		"lock file deleted":             {replace("processes-1", nothing), true},
		"lock file is a directory":      {replace("processes-1", directory), false},
		"lock file is a FIFO":           {replace("processes-1", fifo), true},
		"records and policy deleted":    {all(loseRecords, replace(tokenserver.PolicyName, nothing)), false},
		"records lost, policy garbage":  {all(loseRecords, replace(tokenserver.PolicyName, recordDamages["garbage"])), false},
		"records lost, policy a FIFO":   {all(loseRecords, replace(tokenserver.PolicyName, fifo)), false},
		"records lost, socket a folder": {all(loseRecords, replace(tokenserver.SocketName, directory)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamaged(t)
			if err := test.damage(d); err != nil {
				t.Fatal(err)
			}
			d.check(t, test.served)
		})
	}
}

// TestServedAgain: a run that could not be served is served once that is possible, by the same agent.
func TestServedAgain(t *testing.T) {
	d := newDamaged(t)
	socket := filepath.Join(d.run, tokenserver.SocketName)
	if err := errors.Join(os.Remove(socket), os.Mkdir(socket, 0o755)); err != nil {
		t.Fatal(err)
	}
	n := d.start(t)
	d.keepsRoom(t, n)
	says := func() bool {
		return slices.ContainsFunc(n.Status().Runs, func(r control.Run) bool {
			return strings.Contains(strings.Join(r.Enforcement.Missing, "\n"), "is not a socket")
		})
	}
	if !says() {
		t.Errorf("the status does not say why it is not served: %+v", n.Status().Runs)
	}
	if refusal := n.granter.setLimit(d.program.UID, control.LimitRequest{Run: filepath.Base(d.run), Quota: new(int64(30))}); refusal == nil {
		t.Error("the limit of a run that is not served was changed")
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool {
		c, err := tokenclient.Dial(d.run, 0)
		return err == nil && c.Close() == nil
	})
	if says() {
		t.Error("the status still says that it is not served")
	}
	d.keepsRoom(t, n)
	d.child.end()
	d.program.end()
	eventually(t, "the run has ended", func() bool { return len(runIDs(n)) == 1 })
}

// TestLostRunKeepsItsDevices: while the policy file of a run whose record is lost says which devices it has, the others are shared. A policy file
// that is not understood says nothing.
func TestLostRunKeepsItsDevices(t *testing.T) {
	for name, test := range map[string]struct {
		policy func(file string, text []byte) error
		free   bool // the other device is shared
	}{
		"whole":          {replaceIn("version 1", "version 1"), true},
		"other version":  {replaceIn("version 1", "version 2"), false},
		"cut short":      {func(file string, text []byte) error { return os.WriteFile(file, text[:len(text)-4], 0o600) }, false},
		"unknown device": {replaceIn("GPU-0", "GPU-7"), false},
		"more text":      {func(file string, text []byte) error { return os.WriteFile(file, append(text, 'x'), 0o600) }, false},
		"empty":          {recordDamages["empty"], false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			n := newNode(t, dir)
			grant := mustAdmit(t, n, newProgram(t), ask(60, 60, 1024))
			startProgram(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), "GSHARE_DIR="+grant.Dir) })
			n.Close()
			for _, file := range []string{n.server.copyOf(grant.ID), filepath.Join(grant.Dir, recordName)} {
				damageRecord(t, file, recordDamages["garbage"])
			}
			damageRecord(t, filepath.Join(grant.Dir, tokenserver.PolicyName), test.policy)
			n = newNode(t, dir)
			second, refusal := newProgram(t).admit(n, ask(10, 10, 1024))
			if (refusal == nil) != test.free {
				t.Errorf("another run: %+v", refusal)
			}
			if refusal == nil && !slices.Contains(second.Environment, "CUDA_VISIBLE_DEVICES=GPU-1") {
				t.Errorf("it is on the device of the lost run: %v", second.Environment)
			}
		})
	}
}

// TestLostRunInCgroup: of a run whose record is lost, the cgroup tells whether it has processes, whatever is in their environment.
func TestLostRunInCgroup(t *testing.T) {
	groups, err := FindGroups()
	if err != nil {
		t.Skip("cgroups of version 2 are missing: ", err)
	}
	d := newDamaged(t, func(o *Options) { o.Groups = groups })
	d.child.end()
	for _, file := range []string{d.copy, filepath.Join(d.run, recordName)} {
		damageRecord(t, file, recordDamages["truncated"])
	}
	n := d.start(t, func(o *Options) { o.Groups = groups })
	time.Sleep(2 * n.timing.period)
	d.keepsRoom(t, n)
	d.program.end()
	eventually(t, "the room is free", func() bool { return len(runIDs(n)) == 1 })
}

// TestOpenIfAlive: only what the kernel says of a process counts as its end.
func TestOpenIfAlive(t *testing.T) {
	start, err := process.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ended := newProgram(t)
	ended.end()
	for name, test := range map[string]struct {
		pid   int
		start uint64
		dead  bool
	}{
		"alive":          {os.Getpid(), start, false},
		"another's PID":  {os.Getpid(), start + 1, true},
		"ended":          {ended.PID, start, true},
		"no such number": {1 << 30, start, true},
		"a thread":       {otherThread(t), start, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, dead, err := openIfAlive(test.pid, test.start)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if dead != test.dead {
				t.Errorf("dead is %v", dead)
			}
		})
	}
	t.Run("no descriptor is left", func(t *testing.T) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		_, dead, err := openIfAlive(os.Getpid(), start)
		if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); restored != nil {
			t.Fatal(restored)
		}
		if dead || !errors.Is(err, unix.EMFILE) {
			t.Errorf("dead: %v, %v", dead, err)
		}
	})
}

// otherThread returns the ID of a thread of this process, which is no PID.
func otherThread(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil || len(entries) < 2 {
		t.Skip("there is one thread: ", err)
	}
	var pid int
	if _, err := fmt.Sscan(entries[len(entries)-1].Name(), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}
