package partition_test

import (
	"errors"
	"strings"
	"testing"

	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// TestClear: what gshare made is removed when it is idle, also by a new process; what others made stays.
func TestClear(t *testing.T) {
	n := newNode(t)
	m := n.open()
	n.obtain(m, "1g.10gb@0")
	used := n.obtain(m, "2g.20gb@2")
	if err := n.gpu.CreateForeign(instance(t, n.gpu.Model(), "3g.40gb@4"), 3); err != nil {
		t.Fatal(err)
	}
	if err := m.Clear(); !errors.Is(err, partition.ErrInUse) {
		t.Errorf("with containers: %v", err)
	}
	n.want("1g.10gb@0 2g.20gb@2 3g.40gb@4")
	n.gpu.Start(used.Instance)
	if err := n.open().Clear(); !errors.Is(err, partition.ErrInUse) || !strings.Contains(err.Error(), "2g.20gb at 2") {
		t.Errorf("with a process: %v", err)
	}
	n.want("2g.20gb@2 3g.40gb@4")
	n.gpu.Stop(used.Instance)
	if err := n.open().Clear(); err != nil {
		t.Error(err)
	}
	n.want("3g.40gb@4")
}

// TestClearFails: a step that failed is taken the next time, whether it was taken or not.
func TestClearFails(t *testing.T) {
	broken := errors.New("broken")
	for call := range 3 { // a look and two steps
		for _, after := range []bool{false, true} {
			n := newNode(t)
			n.obtain(n.open(), "1g.10gb@0")
			m := n.open()
			n.gpu.Fail(call, fakemig.Fault{Err: broken, After: after})
			if err := m.Clear(); !errors.Is(err, broken) {
				t.Errorf("call %d: %v", call, err)
			}
			if err := m.Clear(); err != nil {
				t.Errorf("after call %d: %v", call, err)
			}
			n.want("")
		}
	}
}

// TestMade: the journal says whether there may be anything to clear, without the device.
func TestMade(t *testing.T) {
	one := `[{"profile": "1g.10gb", "start": 0}]`
	for name, test := range map[string]struct {
		boot, made, intent string
		want               bool
	}{
		"instance":     {"b", one, "null", true},
		"step":         {"b", "[]", `{"action": "create GPU instance", "profile": "1g.10gb", "start": 0}`, true},
		"nothing":      {"b", "[]", "null", false},
		"earlier boot": {"a", one, "null", false},
	} {
		text := `{"version": 1, "boot": "` + test.boot + `", "device": "GPU-a", "made": ` + test.made + `, "intent": ` + test.intent + `}`
		c := partition.Config{UUID: uuid, BootID: "b", Store: &memory{text: []byte(text)}}
		if made, err := c.HasInstances(); made != test.want || err != nil {
			t.Errorf("%s: %v, %v", name, made, err)
		}
	}
	if _, err := (partition.Config{UUID: uuid, BootID: "b", Store: &memory{text: []byte("{")}}).HasInstances(); !errors.Is(err, partition.ErrJournal) {
		t.Errorf("no journal: %v", err)
	}
}

// TestJournalFile: the journals in the agent's directory tell whose they are.
func TestJournalFile(t *testing.T) {
	if f := partition.JournalFile("/run/gshare", "GPU-a"); f != "/run/gshare/mig-GPU-a.json" {
		t.Error(f)
	}
	for name, want := range map[string]string{"mig-GPU-a.json": "GPU-a", "mig-GPU-a.json.next": "", "agent.lock": "", "run.json": ""} {
		if uuid, ok := partition.JournalGPU(name); ok != (want != "") || ok && uuid != want {
			t.Errorf("%s: %q, %v", name, uuid, ok)
		}
	}
}
