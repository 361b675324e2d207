package simulated

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

const devices = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, mig: []}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-2, model: T4, sms: 40, memoryMiB: 15360, mig: []}
`

// node is a machine with simulated GPUs, on which agents come and go.
type node struct {
	t   *testing.T
	dir string
}

func newNode(t *testing.T) node {
	n := node{t, t.TempDir()}
	if err := os.WriteFile(filepath.Join(n.dir, "devices.yaml"), []byte(devices), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// open is the start of an agent.
func (n node) open(uuid, boot string) (*Source, *partition.Manager, *mig.Model, error) {
	s := &Source{Source: gpu.Simulated{File: filepath.Join(n.dir, "devices.yaml")}, Dir: n.dir, Boot: boot}
	m, model, err := s.Open(partition.Config{UUID: uuid, BootID: boot, Store: partition.JournalFile(n.dir, uuid)})
	return s, m, model, err
}

// listed returns the UUIDs of the instances of GPU-0.
func (n node) listed(s *Source) (uuids []string) {
	n.t.Helper()
	found, err := s.Devices()
	if err != nil || len(found) != 3 {
		n.t.Fatalf("%d devices, %v", len(found), err)
	}
	for _, i := range found[0].Instances {
		uuids = append(uuids, i.UUID)
	}
	return uuids
}

func instance(t *testing.T, m *mig.Model, profile string, start int) mig.Instance {
	t.Helper()
	p, ok := m.Profile(profile)
	if !ok {
		t.Fatalf("no profile %s", profile)
	}
	return mig.Instance{Profile: p, Start: start}
}

// TestInstances: instances are made, exclude those that overlap while they are held, are removed for others when idle, outlive the agent, and end with
// the boot.
func TestInstances(t *testing.T) {
	n := newNode(t)
	s, m, model, err := n.open("GPU-0", "first")
	if err != nil {
		t.Fatal(err)
	}
	large, err := m.Obtain(instance(t, model, "3g.40gb", 4))
	if err != nil || large.UUID != "MIG-0-3g.40gb-4" {
		t.Fatalf("%+v, %v", large, err)
	}
	if _, err := m.Obtain(instance(t, model, "1g.10gb", 5)); !errors.Is(err, partition.ErrInsufficientResources) {
		t.Errorf("an instance that overlaps: %v", err)
	}
	m.Release(large.UUID)
	if _, err := m.Obtain(instance(t, model, "1g.10gb", 5)); err != nil {
		t.Error("in the place of an idle one:", err)
	}
	if got := n.listed(s); len(got) != 1 || got[0] != "MIG-0-1g.10gb-5" {
		t.Errorf("listed: %v", got)
	}
	if s, _, _, err = n.open("GPU-0", "first"); err != nil || len(n.listed(s)) != 1 {
		t.Errorf("the next agent finds %v, %v", n.listed(s), err)
	}
	if s, _, _, err = n.open("GPU-0", "second"); err != nil || len(n.listed(s)) != 0 {
		t.Errorf("after a reboot: %v, %v", n.listed(s), err)
	}
}

// TestRefused: what could not be of a real GPU is refused.
func TestRefused(t *testing.T) {
	n := newNode(t)
	for uuid, want := range map[string]error{"GPU-1": partition.ErrNoMIG, "GPU-9": partition.ErrNoGPU} {
		if _, _, _, err := n.open(uuid, "b"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", uuid, err, want)
		}
	}
	if _, _, _, err := n.open("GPU-2", "b"); err == nil {
		t.Error("a model without known placements is opened")
	}
	s, _, model, err := n.open("GPU-0", "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "simulated-mig-GPU-0.json"), []byte(`{"boot":"b","instances":[{"profile":"9g"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Devices(); err == nil {
		t.Errorf("an instance that %s cannot have is listed", model.Name)
	}
}
