package ondemand

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/lab/migchurn"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// journal is one without a disk.
type journal struct{ text []byte }

func (j *journal) Load() ([]byte, error)  { return j.text, nil }
func (j *journal) Save(text []byte) error { j.text = text; return nil }

// cluster is a node with some GPUs: the scheduler chooses places on them, the agent makes instances there.
type cluster struct {
	source *Source
	gpus   []*device
	fakes  []*fakemig.GPU
	node   *packing.Node
	packer packing.Packer

	held    []held
	layouts []mig.Layout // by the policy beside it
}

// held is an instance that a pod has: the slice where the scheduler put it, its UUID, and where the policy beside it has put it.
type held struct {
	slice  int
	uuid   string
	gpu    int
	theirs mig.Instance
}

func newCluster(t *testing.T, m *mig.Model, gpus int) *cluster {
	t.Helper()
	c := &cluster{packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}}}}
	var offered []packing.Slice
	for n := range gpus {
		uuid := fmt.Sprintf("GPU-%d", n)
		fake := fakemig.New(uuid, m)
		manager, err := partition.Open(partition.Config{Device: fake, UUID: uuid, Store: &journal{}, Boot: "b"})
		if err != nil {
			t.Fatal(err)
		}
		g := &device{GPU: GPU{UUID: uuid}, manager: manager, model: m}
		d := gpu.Device{UUID: uuid, Model: "A100", SMs: 108, Memory: 80 << 30, MIG: true}
		if g.offer(&d); d.Fault != "" {
			t.Fatal(d.Fault)
		}
		for _, i := range d.Instances {
			offered = append(offered, packing.Slice{
				ID: packing.SliceID(i.UUID), Device: uuid, Model: d.Model, Profile: i.Profile, Room: i.MemorySlices, SMs: i.SMs, Memory: i.Memory,
				Classes: []share.Isolation{share.Exclusive}, Healthy: true, MaxShares: 16,
			})
		}
		c.gpus, c.fakes, c.layouts = append(c.gpus, g), append(c.fakes, fake), append(c.layouts, mig.Layout{})
	}
	c.node = packing.NewNode("n", offered, 0, 0)
	c.source = &Source{gpus: c.gpus}
	return c
}

// wish asks for an instance of a profile: the scheduler and the agent on one side, the policy on the other. What one accepts the
// other must, too.
func (c *cluster) wish(p *mig.Profile, policy migchurn.Policy) (accepted bool, err error) {
	pod := &packing.Pod{Request: share.Request{Terms: share.Terms{Slice: p.Name}, Containers: []share.Container{{Name: "c", VGPUs: 1, Share: share.Share{
		SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: share.MiB,
	}}}}}
	var h held
	plan, _, refusal := c.packer.Place(c.node, pod)
	accepted = refusal == packing.Admitted
	var theirs bool
	if h.gpu, h.theirs, theirs = policy(c.layouts, p); accepted != theirs {
		return accepted, fmt.Errorf("%s beside %+v: accepted %v, by the policy %v", p.Name, c.held, accepted, theirs)
	}
	if !accepted {
		return false, nil
	}
	h.slice = plan[0][0].Slice
	if h.uuid, err = c.make(h.slice); err != nil {
		return true, err
	}
	c.node.Take(packing.Slots, pod, plan)
	c.layouts[h.gpu] = c.layouts[h.gpu].With(h.theirs)
	c.held = append(c.held, h)
	return true, c.check()
}

// make is the agent's part: the placement names GPU, profile and start.
func (c *cluster) make(slice int) (uuid string, err error) {
	id := string(c.node.Slices[slice].ID)
	g := c.source.of(id)
	if g == nil || g.UUID != c.node.Slices[slice].Device {
		return "", fmt.Errorf("%s is of no GPU", id)
	}
	at, ok := g.find(id)
	if !ok {
		return "", fmt.Errorf("%s is no place", id)
	}
	i, err := g.manager.Obtain(at)
	if err == nil && slices.ContainsFunc(c.held, func(h held) bool { return h.uuid == i.UUID }) {
		err = fmt.Errorf("%s is another's", i.UUID)
	}
	return i.UUID, err
}

func (c *cluster) end(n int) {
	h := c.held[n]
	c.node.Loads[h.slice] = packing.Load{}
	for _, g := range c.gpus {
		if g.UUID == c.node.Slices[h.slice].Device {
			g.manager.Release(h.uuid)
		}
	}
	c.layouts[h.gpu] = c.layouts[h.gpu].Without(h.theirs)
	c.held = slices.Delete(c.held, n, n+1)
}

// check holds that what the pods have is there, and lies where the scheduler put it.
func (c *cluster) check() error {
	for _, h := range c.held {
		there := false
		for n, fake := range c.fakes {
			found, err := fake.Instances()
			if err != nil {
				return err
			}
			for _, i := range found {
				there = there || i.UUID == h.uuid && place(c.gpus[n].UUID, i.Instance) == string(c.node.Slices[h.slice].ID)
			}
		}
		if !there {
			return fmt.Errorf("%s of %s is gone", h.uuid, c.node.Slices[h.slice].ID)
		}
	}
	return nil
}

// empty ends all, and takes each whole GPU: nothing that was left over is in the way.
func (c *cluster) empty(policy migchurn.Policy) error {
	for len(c.held) > 0 {
		c.end(0)
	}
	profiles := c.gpus[0].model.Profiles
	for range c.gpus {
		if ok, err := c.wish(&profiles[len(profiles)-1], policy); !ok || err != nil {
			return fmt.Errorf("a whole GPU where nobody has any of it: %v, %v", ok, err)
		}
	}
	return nil
}

func (c *cluster) play(random *rand.Rand, policy migchurn.Policy, accepted map[bool]int) error {
	var plain []*mig.Profile
	for i := range c.gpus[0].model.Profiles {
		if p := &c.gpus[0].model.Profiles[i]; !p.Media {
			plain = append(plain, p)
		}
	}
	for range 30 {
		if len(c.held) > 0 && random.IntN(5) < 2 {
			c.end(random.IntN(len(c.held)))
			continue
		}
		ok, err := c.wish(plain[random.IntN(len(plain))], policy)
		if err != nil {
			return err
		}
		accepted[ok]++
	}
	return c.empty(policy)
}

// known gives a model whose SMs are known, as the driver tells them.
func known(m *mig.Model) *mig.Model {
	k := *m
	k.Profiles = slices.Clone(m.Profiles)
	for i := range k.Profiles {
		k.Profiles[i].SMs = 14 * k.Profiles[i].Compute
	}
	return &k
}

// TestAcceptance plays random wishes and ends against the scheduler's choice and the agent's instances: nothing illegal is made
// (the fake GPU refuses it), nothing that a pod has is touched, nothing is left over, and what gshare-lab simulate mig accepts by its
// policy gradient is accepted.
func TestAcceptance(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	accepted := map[bool]int{}
	policies := map[*mig.Model]migchurn.Policy{}
	for _, m := range mig.Models() {
		policies[m] = migchurn.Gradient(m)
	}
	for n := range 10_000 {
		m := mig.Models()[n%len(mig.Models())]
		c := newCluster(t, known(m), 1+n%3)
		if err := c.play(random, policies[m], accepted); err != nil {
			t.Fatalf("sequence %d on %d of %s: %v", n, len(c.gpus), m.Name, err)
		}
	}
	t.Logf("%d wishes accepted, %d refused", accepted[true], accepted[false])
	if accepted[true] < 50_000 || accepted[false] < 10_000 {
		t.Errorf("%d wishes accepted, %d refused: not much was tried", accepted[true], accepted[false])
	}
}
