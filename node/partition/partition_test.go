package partition_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/partition"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

const uuid = "GPU-a"

func model(t testing.TB) *mig.Model {
	t.Helper()
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// parsePlacement parses a placement such as "1g.10gb@3".
func parsePlacement(m *mig.Model, text string) (at mig.Instance, err error) {
	name, start, _ := strings.Cut(text, "@")
	p, ok := m.Profile(name)
	if _, err := fmt.Sscan(start, &at.Start); err != nil || !ok {
		return at, fmt.Errorf("invalid placement %q: %v", text, err)
	}
	at.Profile = p
	return at, nil
}

func instance(t testing.TB, m *mig.Model, text string) mig.Instance {
	t.Helper()
	at, err := parsePlacement(m, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// memory is a Store in memory. It fails while err is set.
type memory struct {
	text []byte
	err  error
}

func (m *memory) Load() ([]byte, error) { return m.text, m.err }
func (m *memory) Save(text []byte) error {
	if m.err == nil {
		m.text = text
	}
	return m.err
}

// node is a GPU with its journal, over restarts of the agent.
type node struct {
	t    *testing.T
	gpu  *fakemig.GPU
	disk *memory
	boot string
}

func newNode(t *testing.T) *node {
	return &node{t: t, gpu: fakemig.New(uuid, model(t)), disk: &memory{}, boot: "boot 1"}
}

func (n *node) open(held ...partition.Instance) *partition.Manager {
	n.t.Helper()
	m, err := partition.Open(partition.Config{Device: n.gpu, UUID: uuid, Store: n.disk, BootID: n.boot})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, h := range held {
		if i, err := m.Hold(h.Instance); err != nil || i != h {
			n.t.Fatalf("got %+v, %v; want %+v", i, err, h)
		}
	}
	return m
}

func (n *node) obtain(m *partition.Manager, place string) partition.Instance {
	n.t.Helper()
	at := instance(n.t, n.gpu.Model(), place)
	i, err := m.Obtain(at)
	if err != nil || i.UUID == "" || i.Instance != at {
		n.t.Fatalf("%s: %+v, %v", place, i, err)
	}
	return i
}

// want compares the instances on the GPU with a list such as "1g.10gb@3 2g.20gb@4".
func (n *node) want(want string) {
	n.t.Helper()
	found, err := n.gpu.Instances()
	if err != nil {
		n.t.Fatal(err)
	}
	var got []string
	for _, i := range found {
		half := ""
		if i.ComputeInstances == 0 {
			half = "half "
		}
		got = append(got, fmt.Sprintf("%s%s@%d", half, i.Profile.Name, i.Start))
	}
	if text := strings.Join(got, " "); text != want {
		n.t.Fatalf("got instances %q, want %q", text, want)
	}
}

// refused checks that an instance cannot be obtained, with an error.
func (n *node) refused(m *partition.Manager, place string, want error) {
	n.t.Helper()
	if i, err := m.Obtain(instance(n.t, n.gpu.Model(), place)); !errors.Is(err, want) {
		n.t.Fatalf("%s: %+v, %v; want %v", place, i, err, want)
	}
}

// TestReuseAndReclaim: an idle instance is reused at its placement, and removed if it is in the way of another.
func TestReuseAndReclaim(t *testing.T) {
	n := newNode(t)
	m := n.open()
	a, b := n.obtain(m, "1g.10gb@6"), n.obtain(m, "1g.10gb@4")
	n.want("1g.10gb@4 1g.10gb@6")
	n.refused(m, "7g.80gb@0", partition.ErrInsufficientResources)
	m.Release(b.UUID)
	if again := n.obtain(m, "1g.10gb@4"); again != b || len(n.gpu.Steps()) != 4 {
		t.Errorf("got %+v, want the idle %+v, after %q", again, b, n.gpu.Steps())
	}
	m.Release(a.UUID)
	m.Release(b.UUID)
	n.want("1g.10gb@4 1g.10gb@6") // idle ones stay until their slices are needed
	n.obtain(m, "3g.40gb@4")
	n.want("3g.40gb@4")
}

// TestBusyStays: an instance with processes is not removed, whether its container has ended or it never had one.
func TestBusyStays(t *testing.T) {
	n := newNode(t)
	m := n.open()
	a := n.obtain(m, "1g.10gb@6")
	n.gpu.Start(a.Instance)
	m.Release(a.UUID)
	n.refused(m, "7g.80gb@0", partition.ErrInsufficientResources)
	n.refused(m, "1g.10gb@6", partition.ErrInsufficientResources)
	n.gpu.Stop(a.Instance)
	n.obtain(m, "1g.10gb@6")
}

// TestRefusedAsInUse: if the driver refuses to remove an instance because a process has started meanwhile, or is never listed, Obtain fails.
func TestRefusedAsInUse(t *testing.T) {
	n := newNode(t)
	m := n.open()
	a, b := n.obtain(m, "3g.40gb@4"), n.obtain(m, "3g.40gb@0")
	m.Release(a.UUID)
	m.Release(b.UUID)
	n.gpu.Fail(1, fakemig.Fault{Err: partition.ErrInUse}) // the look is call 0
	n.refused(m, "2g.20gb@4", partition.ErrInUse)
	n.want("3g.40gb@0 3g.40gb@4")
	n.obtain(m, "2g.20gb@0")
	n.want("2g.20gb@0 3g.40gb@4")
}

// seized is a GPU on which a process starts as soon as an instance exists.
type seized struct{ *fakemig.GPU }

func (g seized) Apply(s geometry.Step) error {
	err := g.GPU.Apply(s)
	if s.Action == geometry.CreateCompute {
		g.Start(s.Instance)
	}
	return err
}

// TestSeizedAtOnce: an instance on which a process starts before it is obtained is not handed out.
func TestSeizedAtOnce(t *testing.T) {
	n := newNode(t)
	m, err := partition.Open(partition.Config{Device: seized{n.gpu}, UUID: uuid, Store: n.disk, BootID: n.boot})
	if err != nil {
		t.Fatal(err)
	}
	n.refused(m, "1g.10gb@6", partition.ErrInsufficientResources)
}

// TestForeignInstances: instances that others created are not removed.
func TestForeignInstances(t *testing.T) {
	n := newNode(t)
	for text, compute := range map[string][]int{"1g.10gb@0": {1}, "3g.40gb@4": {1, 2}, "1g.10gb@2": nil} {
		if err := n.gpu.CreateForeign(instance(t, n.gpu.Model(), text), compute...); err != nil {
			t.Fatal(err)
		}
	}
	m := n.open()
	n.obtain(m, "1g.10gb@0")
	n.refused(m, "3g.40gb@0", partition.ErrInsufficientResources)
	n.refused(m, "2g.20gb@2", partition.ErrInsufficientResources)
	n.refused(m, "3g.40gb@4", partition.ErrInsufficientResources)
	n.want("1g.10gb@0 half 1g.10gb@2 3g.40gb@4")
	n.obtain(m, "1g.10gb@1")
	n.obtain(m, "1g.10gb@3")
	n.refused(m, "1g.10gb@2", partition.ErrInsufficientResources) // the half one is another's
	n = newNode(t)
	if err := n.gpu.CreateForeign(instance(t, n.gpu.Model(), "1g.10gb@6"), 1); err != nil {
		t.Fatal(err)
	}
	m = n.open()
	m.Release(n.obtain(m, "1g.10gb@6").UUID)
	n.refused(m, "7g.80gb@0", partition.ErrInsufficientResources) // given, released, and still not gshare's to remove
}

// TestRestart: a new manager knows the instances of the last one, and holds only those that containers have.
func TestRestart(t *testing.T) {
	n := newNode(t)
	m := n.open()
	a, b := n.obtain(m, "1g.10gb@6"), n.obtain(m, "2g.20gb@4")
	m = n.open(a)
	n.refused(m, "7g.80gb@0", partition.ErrInsufficientResources)
	if again := n.obtain(m, "2g.20gb@4"); again != b {
		t.Errorf("got %+v, want the idle %+v", again, b)
	}
	m = n.open()
	n.obtain(m, "7g.80gb@0")
	n.want("7g.80gb@0")
}

// TestReboot: after a reboot, an instance at a placement that gshare used before is foreign.
func TestReboot(t *testing.T) {
	n := newNode(t)
	a := n.obtain(n.open(), "1g.10gb@6")
	n.gpu.Reboot()
	n.boot = "boot 2"
	if err := n.gpu.CreateForeign(a.Instance, 1); err != nil { // where gshare had one
		t.Fatal(err)
	}
	m := n.open()
	n.refused(m, "7g.80gb@0", partition.ErrInsufficientResources)
	n.obtain(m, "4g.40gb@0")
	n.want("4g.40gb@0 1g.10gb@6")
}

// TestReset: a reset of the GPU removes the instances without a reboot.
func TestReset(t *testing.T) {
	n := newNode(t)
	m := n.open()
	n.obtain(m, "1g.10gb@6")
	n.gpu.Reboot()
	n.obtain(m, "7g.80gb@0")
	n.want("7g.80gb@0")
}

// TestInvalidJournal: a manager does not open with an invalid journal.
func TestInvalidJournal(t *testing.T) {
	n := newNode(t)
	n.obtain(n.open(), "1g.10gb@6")
	good := string(n.disk.text)
	for name, text := range map[string]string{
		"empty": "", "torn": good[:len(good)-9], "another version": strings.Replace(good, `"version":1`, `"version":2`, 1),
		"another GPU": strings.Replace(good, uuid, "GPU-b", 1), "unknown field": strings.Replace(good, `{"version"`, `{"more":1,"version"`, 1),
		"two records": good + good, "no profile": strings.Replace(good, "1g.10gb", "0g", 1), "no place": strings.Replace(good, `"start":6`, `"start":8`, 1),
		"twice": strings.Replace(good, `"made":[`, `"made":[{"profile":"1g.10gb","start":6},`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			n.disk.text = []byte(text)
			_, err := partition.Open(partition.Config{Device: n.gpu, UUID: uuid, Store: n.disk, BootID: n.boot})
			if text == good || !errors.Is(err, partition.ErrJournal) {
				t.Errorf("got error %v, want ErrJournal", err)
			}
		})
	}
	n.want("1g.10gb@6")
}

// TestHang: a step that hangs is in the journal, so that the next agent knows its result.
func TestHang(t *testing.T) {
	n := newNode(t)
	m := n.open()
	hang, began, done := make(chan struct{}), make(chan struct{}), make(chan error)
	n.gpu.Fail(1, fakemig.Fault{Hang: hang, Began: began})
	at := instance(t, n.gpu.Model(), "1g.10gb@6")
	go func() {
		_, err := m.Obtain(at)
		done <- err
	}()
	<-began
	left := &memory{text: n.disk.text} // the journal as it is while the driver hangs
	close(hang)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n.disk = left
	n.obtain(n.open(), "7g.80gb@0") // what was made after the call came back is known to be gshare's
	n.want("7g.80gb@0")
}

// TestFailureIsReconciled: after a failed step the journal is reconciled with the device before the error is returned.
func TestFailureIsReconciled(t *testing.T) {
	unknown := errors.New("unknown")
	for _, after := range []bool{false, true} {
		n := newNode(t)
		m := n.open()
		n.gpu.Fail(1, fakemig.Fault{Err: unknown, After: after})
		n.refused(m, "1g.10gb@6", unknown)
		text := string(n.disk.text)
		if made := strings.Contains(text, `"start":6`); !strings.Contains(text, `"intent":null`) || made != after {
			t.Errorf("acted %v: %s", after, text)
		}
		n.obtain(m, "1g.10gb@6")
		if len(n.gpu.Steps()) != 2 {
			t.Errorf("acted %v: %v", after, n.gpu.Steps())
		}
	}
}

// TestJournalNotWritten: if the journal cannot be written, the GPU is not changed and no instance is handed out.
func TestJournalNotWritten(t *testing.T) {
	n := newNode(t)
	m := n.open()
	n.disk.err = errors.New("disk full")
	n.refused(m, "1g.10gb@6", n.disk.err)
	n.want("")
	n.disk.err = nil
	n.obtain(m, "1g.10gb@6")
}

// TestPartlyRemoved: a GPU instance whose compute instance was removed, but which the driver kept, is removed later.
func TestPartlyRemoved(t *testing.T) {
	n := newNode(t)
	m := n.open()
	m.Release(n.obtain(m, "7g.80gb@0").UUID)
	n.gpu.Fail(2, fakemig.Fault{Err: partition.ErrInUse}) // after the look and the compute instance
	n.refused(m, "1g.10gb@6", partition.ErrInUse)
	n.want("half 7g.80gb@0")
	m = n.open()
	n.obtain(m, "1g.10gb@6")
	n.want("1g.10gb@6")
}

// TestConcurrent: concurrent requests for one placement have one winner.
func TestConcurrent(t *testing.T) {
	n := newNode(t)
	m := n.open()
	got := make(chan string, 14)
	for k := range cap(got) {
		at := instance(t, n.gpu.Model(), fmt.Sprintf("1g.10gb@%d", k%7))
		go func() {
			i, err := m.Obtain(at)
			if err != nil && !errors.Is(err, partition.ErrInsufficientResources) {
				t.Error(err)
			}
			got <- i.UUID
		}()
	}
	given := map[string]int{}
	for range cap(got) {
		given[<-got]++
	}
	if len(given) != 8 || given[""] != 7 {
		t.Errorf("%d answers: %v", len(given), given)
	}
}

// TestBrokenDevice: a device that refuses all steps, or cannot be listed, leads to errors and changes no hold.
func TestBrokenDevice(t *testing.T) {
	n := newNode(t)
	m := n.open()
	for range 5 {
		n.gpu.Fail(1, fakemig.Fault{Err: partition.ErrInUse}) // the step after the look
		n.refused(m, "1g.10gb@6", partition.ErrInUse)
	}
	if acts := n.gpu.Steps(); len(acts) > 0 {
		t.Errorf("%q", acts)
	}
	blind := errors.New("GPU is lost")
	n.gpu.Fail(0, fakemig.Fault{Err: blind})
	n.refused(m, "1g.10gb@6", blind)
	n.gpu.Fail(0, fakemig.Fault{Err: blind})
	if _, err := partition.Open(partition.Config{Device: n.gpu, UUID: uuid, Store: n.disk, BootID: n.boot}); !errors.Is(err, blind) {
		t.Errorf("opened: %v", err)
	}
	n.obtain(m, "7g.80gb@0")
}

// TestInstances: instances of gshare and of others are listed separately; if the device cannot be listed, neither is known.
func TestInstances(t *testing.T) {
	n := newNode(t)
	if err := n.gpu.CreateForeign(instance(t, n.gpu.Model(), "3g.40gb@4"), 3); err != nil {
		t.Fatal(err)
	}
	m := n.open()
	made := n.obtain(m, "1g.10gb@0")
	created, foreign, err := m.Instances()
	if err != nil || len(created) != 1 || created[0] != made || len(foreign) != 1 || foreign[0].Start != 4 {
		t.Errorf("%+v, %+v, %v", created, foreign, err)
	}
	n.gpu.Fail(0, fakemig.Fault{Err: errors.New("unknown")})
	if created, foreign, err := m.Instances(); err == nil || len(created)+len(foreign) > 0 {
		t.Errorf("%+v, %+v, %v", created, foreign, err)
	}
}
