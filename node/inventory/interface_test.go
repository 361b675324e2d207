package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// machine is a machine with two GPUs, whose agents end at any moment. Pods and claims come by what is published, one interface after the other.
type machine struct {
	t       *testing.T
	rng     *rand.Rand
	config  Config
	inv     Inventory
	file    kube.Inventory // of the device plugin's slices
	record  []byte         // of the slices of claims
	holders Holders
	log     []string
}

// devices returns the GPUs: each is whole, or has an instance of an administrator and some of its places.
func (m *machine) devices() (found []gpu.Device) {
	for i, name := range []string{"d", "e"} {
		d := whole(name)
		d.Index = i
		if m.rng.IntN(8) > 0 {
			d = mig(name, name+"s", name+"0", name+"1", name+"2")
			d.Index = i
			for n := range d.Instances[1:] {
				d.Instances[n+1].MemorySlices = 1 << n
			}
			d.Instances = slices.DeleteFunc(d.Instances, func(i gpu.Instance) bool {
				return m.rng.IntN(4) == 0 && !slices.Contains(m.holders.Claims, i.UUID)
			})
		}
		if m.rng.IntN(10) == 0 { // it is not open yet, or the driver does not list its instances
			d.Fault, d.MIG, d.Instances = "not open", true, nil
		}
		found = append(found, d)
	}
	return found
}

func (m *machine) check() {
	ids, of := map[string]bool{}, map[string]bool{}
	for _, s := range m.inv.Slices() {
		if ids[s.ID] {
			m.t.Fatalf("%v: %s is there twice", m.log, s.ID)
		}
		ids[s.ID] = true
		key := s.ownedTogether()
		if claims, known := of[key]; known && claims != s.Claims {
			m.t.Fatalf("%v: %s is of both interfaces", m.log, key)
		}
		of[key] = s.Claims
		if slices.Contains(m.holders.Claims, s.ID) && !s.Claims {
			m.t.Fatalf("%v: %s has a claim, and is of the device plugin", m.log, s.ID)
		}
	}
}

// step lets one thing happen.
func (m *machine) step() {
	before := m.inv.OfClaims()
	switch what := m.rng.IntN(8); what {
	case 0: // other configuration
		m.config.Claimed = [][]string{nil, {"d"}, {"e"}, {AllDevices}}[m.rng.IntN(4)]
		m.log = append(m.log, fmt.Sprint("config ", m.config.Claimed))
	case 1: // a claim comes
		if n := len(before); n > 0 {
			if s := before[m.rng.IntN(n)]; s.Healthy && !slices.Contains(m.holders.Claims, s.ID) {
				m.holders.Claims = append(m.holders.Claims, s.ID)
				m.log = append(m.log, "claim of "+s.ID)
			}
		}
	case 2: // claims go
		m.holders.Claims = nil
		m.log = append(m.log, "no claims")
	case 3: // pods come or go
		m.holders.Placed = m.rng.IntN(2) == 0
		m.log = append(m.log, fmt.Sprint("placed ", m.holders.Placed))
	case 4: // the agent ends, and the next one starts
		inv, err := Restore(m.config, m.file).WithClaims(m.config, m.record)
		if err != nil {
			m.t.Fatal(err)
		}
		m.inv = inv
		m.log = append(m.log, "restart")
		m.check()
		fallthrough
	default:
		m.holders.Bound = m.holders.Placed || len(m.holders.Claims) > 0
		was := m.inv
		found := m.devices()
		m.inv = m.inv.Update(m.config, found, m.holders)
		m.log = append(m.log, fmt.Sprintf("update to %v", ids(m.inv)))
		for _, s := range m.inv.OfClaims() {
			if m.holders.Placed && slices.ContainsFunc(was.Slices(), func(old Slice) bool { return old.ID == s.ID && !old.Claims }) {
				m.t.Fatalf("%v: %s goes to claims, and pods may have it", m.log, s.ID)
			}
		}
		var err error
		if m.record, err = m.inv.EncodeClaims(); err != nil {
			m.t.Fatal(err)
		}
		if m.rng.IntN(4) > 0 { // or it is killed before this
			m.file = m.inv.Published()
		}
	}
	m.check()
}

// TestInterfacesAtRandom: whatever the configuration, the driver and the agents do, a slice is there once, the places of a GPU are of one interface, and
// what has a claim, or may have pods, stays with theirs.
func TestInterfacesAtRandom(t *testing.T) {
	for seed := range uint64(100) {
		m := &machine{t: t, rng: rand.New(rand.NewPCG(seed, 1)), config: config, record: []byte(`{"version":1}`)}
		for range 60 {
			m.step()
		}
	}
}
