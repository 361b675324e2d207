package partition_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/partition"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
)

// TestClear: idle instances that gshare created are removed, also by a new process; those of others stay.
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

// TestClearFails: Clear can be repeated after a step failed, whether the step took effect or not.
func TestClearFails(t *testing.T) {
	broken := errors.New("broken")
	for call := range 3 { // a list and two steps
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, took effect %v", call, after), func(t *testing.T) {
				n := newNode(t)
				n.obtain(n.open(), "1g.10gb@0")
				m := n.open()
				n.gpu.Fail(call, fakemig.Fault{Err: broken, After: after})
				if err := m.Clear(); !errors.Is(err, broken) {
					t.Errorf("got error %v", err)
				}
				if err := m.Clear(); err != nil {
					t.Errorf("second time: %v", err)
				}
				n.want("")
			})
		}
	}
}

// TestHasInstances: the journal shows whether there may be instances to clear, without the device.
func TestHasInstances(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			text := `{"version": 1, "boot": "` + test.boot + `", "device": "GPU-a", "made": ` + test.made + `, "intent": ` + test.intent + `}`
			c := partition.Config{UUID: uuid, BootID: "b", Store: &memory{text: []byte(text)}}
			if made, err := c.HasInstances(); made != test.want || err != nil {
				t.Errorf("got %v, %v", made, err)
			}
		})
	}
	if _, err := (partition.Config{UUID: uuid, BootID: "b", Store: &memory{text: []byte("{")}}).HasInstances(); !errors.Is(err, partition.ErrJournal) {
		t.Errorf("invalid journal: %v", err)
	}
}

// TestJournalFile: the name of a journal in the agent's directory has the UUID of its GPU.
func TestJournalFile(t *testing.T) {
	if f := partition.JournalFile("/run/gshare", "GPU-a"); f != "/run/gshare/mig-GPU-a.json" {
		t.Error(f)
	}
	for name, want := range map[string]string{"mig-GPU-a.json": "GPU-a", "mig-GPU-a.json.next": "", "agent.lock": "", "run.json": ""} {
		t.Run(name, func(t *testing.T) {
			if uuid, ok := partition.JournalGPU(name); ok != (want != "") || ok && uuid != want {
				t.Errorf("got %q, %v", uuid, ok)
			}
		})
	}
}
