package ondemand

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/lab/migchurn"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// journal is a partition.Store in memory.
type journal struct{ text []byte }

func (j *journal) Load() ([]byte, error)  { return j.text, nil }
func (j *journal) Save(text []byte) error { j.text = text; return nil }

// cluster is a node with some GPUs, on which the scheduler chooses placements and the agent creates instances. A policy of migchurn runs
// beside it on the same requests.
type cluster struct {
	source  *Source
	devices []*device
	fakes   []*fakemig.GPU
	node    *packing.Node
	packer  packing.Packer

	held    []held
	layouts []mig.Layout // of the policy
}

// held is the instance of a pod.
type held struct {
	slice       int    // where the scheduler placed it
	uuid        string // of the instance
	policyGPU   int    // where the policy placed it
	policyPlace mig.Instance
}

func newCluster(t *testing.T, m *mig.Model, gpus int) *cluster {
	t.Helper()
	c := &cluster{packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}}}}
	var offered []packing.Slice
	for n := range gpus {
		uuid := fmt.Sprintf("GPU-%d", n)
		fake := fakemig.New(uuid, m)
		manager, err := partition.Open(partition.Config{Device: fake, UUID: uuid, Store: &journal{}, BootID: "b"})
		if err != nil {
			t.Fatal(err)
		}
		g := &device{GPU: GPU{UUID: uuid}, manager: manager, model: m}
		d := gpu.Device{UUID: uuid, Model: "A100", SMs: 108, Memory: 80 << 30, MIG: true}
		if g.offerPlacements(&d); d.Fault != "" {
			t.Fatal(d.Fault)
		}
		for _, i := range d.Instances {
			offered = append(offered, packing.Slice{
				ID: packing.SliceID(i.UUID), Device: uuid, Model: d.Model, Profile: i.Profile, MemorySlices: i.MemorySlices, SMs: i.SMs, Memory: i.Memory,
				Classes: []share.Isolation{share.Exclusive}, Healthy: true, MaxShares: 16,
			})
		}
		c.devices, c.fakes, c.layouts = append(c.devices, g), append(c.fakes, fake), append(c.layouts, mig.Layout{})
	}
	c.node = packing.NewNode("n", offered, 0, 0)
	c.source = &Source{devices: c.devices}
	return c
}

// request requests an instance of a profile from scheduler and agent, and from the policy, which must agree.
func (c *cluster) request(p *mig.Profile, policy migchurn.Policy) (accepted bool, err error) {
	pod := &packing.Pod{Request: share.Request{Terms: share.Terms{Slice: p.Name}, Containers: []share.Container{{Name: "c", VGPUs: 1, Share: share.Share{
		SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: share.MiB,
	}}}}}
	var h held
	plan, _, refusal := c.packer.Place(c.node, pod)
	accepted = refusal == packing.Admitted
	var policyAccepts bool
	if h.policyGPU, h.policyPlace, policyAccepts = policy(c.layouts, p); accepted != policyAccepts {
		return accepted, fmt.Errorf("%s beside %+v: accepted %v, by the policy %v", p.Name, c.held, accepted, policyAccepts)
	}
	if !accepted {
		return false, nil
	}
	h.slice = plan[0][0].Slice
	if h.uuid, err = c.create(h.slice); err != nil {
		return true, err
	}
	c.node.Take(packing.Slots, pod, plan)
	c.layouts[h.policyGPU] = c.layouts[h.policyGPU].With(h.policyPlace)
	c.held = append(c.held, h)
	return true, c.check()
}

// create does the agent's part: it creates the instance of the placement on a slice.
func (c *cluster) create(slice int) (uuid string, err error) {
	id := string(c.node.Slices[slice].ID)
	g := c.source.gpuOfPlacement(id)
	if g == nil || g.UUID != c.node.Slices[slice].Device {
		return "", fmt.Errorf("%s is not on its GPU", id)
	}
	at, ok := g.placementByID(id)
	if !ok {
		return "", fmt.Errorf("%s is not a placement", id)
	}
	i, err := g.manager.Obtain(at)
	if err == nil && slices.ContainsFunc(c.held, func(h held) bool { return h.uuid == i.UUID }) {
		err = fmt.Errorf("%s belongs to another pod", i.UUID)
	}
	return i.UUID, err
}

// end ends a pod.
func (c *cluster) end(n int) {
	h := c.held[n]
	c.node.Loads[h.slice] = packing.Load{}
	for _, g := range c.devices {
		if g.UUID == c.node.Slices[h.slice].Device {
			g.manager.Release(h.uuid)
		}
	}
	c.layouts[h.policyGPU] = c.layouts[h.policyGPU].Without(h.policyPlace)
	c.held = slices.Delete(c.held, n, n+1)
}

// check returns an error unless the pods' instances exist where the scheduler placed them.
func (c *cluster) check() error {
	for _, h := range c.held {
		exists := false
		for n, fake := range c.fakes {
			found, err := fake.Instances()
			if err != nil {
				return err
			}
			for _, i := range found {
				exists = exists || i.UUID == h.uuid && placementID(c.devices[n].UUID, i.Instance) == string(c.node.Slices[h.slice].ID)
			}
		}
		if !exists {
			return fmt.Errorf("%s of %s does not exist", h.uuid, c.node.Slices[h.slice].ID)
		}
	}
	return nil
}

// empty ends all pods and then requests each whole GPU, which instances that were left over would prevent.
func (c *cluster) empty(policy migchurn.Policy) error {
	for len(c.held) > 0 {
		c.end(0)
	}
	profiles := c.devices[0].model.Profiles
	for range c.devices {
		if ok, err := c.request(&profiles[len(profiles)-1], policy); !ok || err != nil {
			return fmt.Errorf("whole GPU on an empty node: accepted %v, %v", ok, err)
		}
	}
	return nil
}

// play starts and ends pods at random.
func (c *cluster) play(random *rand.Rand, policy migchurn.Policy, accepted map[bool]int) error {
	var plain []*mig.Profile
	for i := range c.devices[0].model.Profiles {
		if p := &c.devices[0].model.Profiles[i]; !p.Media {
			plain = append(plain, p)
		}
	}
	for range 30 {
		if len(c.held) > 0 && random.IntN(5) < 2 {
			c.end(random.IntN(len(c.held)))
			continue
		}
		ok, err := c.request(plain[random.IntN(len(plain))], policy)
		if err != nil {
			return err
		}
		accepted[ok]++
	}
	return c.empty(policy)
}

// withSMs returns a copy of a model with numbers of SMs, as the driver reports them.
func withSMs(m *mig.Model) *mig.Model {
	k := *m
	k.Profiles = slices.Clone(m.Profiles)
	for i := range k.Profiles {
		k.Profiles[i].SMs = 14 * k.Profiles[i].Compute
	}
	return &k
}

// TestAcceptance plays random requests and ends of pods against the scheduler's choice and the agent's instances. No illegal instance is
// created, as the fake GPU would refuse it; no pod's instance is touched; none is left over; and exactly the requests that gshare-lab
// simulate mig accepts by its policy gradient are accepted.
func TestAcceptance(t *testing.T) {
	var mu sync.Mutex
	total := map[bool]int{}
	t.Run("models", func(t *testing.T) {
		for k, m := range mig.Models() {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				random, policy, accepted := rand.New(rand.NewPCG(11, uint64(k))), migchurn.Gradient(m), map[bool]int{}
				for n := k; n < 10_000; n += len(mig.Models()) {
					c := newCluster(t, withSMs(m), 1+n%3)
					if err := c.play(random, policy, accepted); err != nil {
						t.Fatalf("sequence %d on %d GPUs: %v", n, len(c.devices), err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				total[true] += accepted[true]
				total[false] += accepted[false]
			})
		}
	})
	t.Logf("%d requests accepted, %d refused", total[true], total[false])
	if total[true] < 50_000 || total[false] < 10_000 {
		t.Errorf("%d requests accepted, %d refused: too few for this test", total[true], total[false])
	}
}
