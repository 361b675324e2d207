package inventory

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var config = Config{Classes: []share.Isolation{share.Exclusive, share.MPS}, Reserve: 50, MaxShares: 16}

func whole(uuid string) gpu.Device {
	return gpu.Device{UUID: uuid, Model: "A100", SMs: 108, Memory: 80 << 30}
}

func mig(uuid string, instances ...string) gpu.Device {
	d := whole(uuid)
	d.MIG = true
	for _, i := range instances {
		d.Instances = append(d.Instances, gpu.Instance{UUID: i, Profile: "1g.10gb", SMs: 14, Memory: 9 << 30})
	}
	return d
}

func ids(inv Inventory) (ids []string) {
	for _, s := range inv.Slices() {
		if s.Healthy != (s.Reason == "") {
			panic("a slice is closed without a reason, or with one is not")
		}
		ids = append(ids, strings.TrimSpace(s.ID+" "+string(s.Reason)))
	}
	return ids
}

func TestPublishedStore(t *testing.T) {
	for _, store := range []bool{false, true} {
		c := config
		c.Store = store
		for _, s := range (Inventory{}).Update(c, []gpu.Device{whole("a"), mig("b", "x")}, Holders{}).Published().Slices {
			if s.Store != store {
				t.Errorf("slice %s has a store: %t, want %t", s.ID, s.Store, store)
			}
		}
	}
}

// TestContexts: where shares are possible, part of the memory of each slice is not offered, and the agent knows how much.
func TestContexts(t *testing.T) {
	devices := []gpu.Device{whole("a"), mig("b", "x")}
	devices[1].Instances[0].Memory = 4 << 30
	for name, test := range map[string]struct {
		classes []share.Isolation
		want    []int64 // MiB
	}{
		"shared":         {config.Classes, []int64{79 << 10, 3584}},
		"exclusive only": {config.Classes[:1], []int64{80 << 10, 4096}},
	} {
		t.Run(name, func(t *testing.T) {
			c := config
			c.Contexts, c.Classes = 1024*share.MiB, test.classes
			inv := (Inventory{}).Update(c, devices, Holders{})
			for i, s := range inv.Published().Slices {
				if s.MemoryMiB != test.want[i] {
					t.Errorf("slice %s offers %d MiB, want %d", s.ID, s.MemoryMiB, test.want[i])
				}
				if got, want := share.Bytes(s.MemoryMiB)*share.MiB+inv.Kept()[s.ID], []share.Bytes{80 << 30, 4 << 30}[i]; got != want {
					t.Errorf("slice %s has %d MiB, want %d", s.ID, got/share.MiB, want/share.MiB)
				}
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	sick := whole("a")
	sick.Fault = "Xid 79"
	mute := mig("a")
	mute.Fault = "it does not answer"
	uncounted, partly := mig("a"), mig("a", "y")
	uncounted.Incomplete, partly.Incomplete = "no number", "x is lost"
	for name, test := range map[string]struct {
		before, now []gpu.Device
		closed      []string
		bound       bool
		want        []string
	}{
		"first":                 {nil, []gpu.Device{whole("a"), mig("b", "x", "y")}, nil, false, []string{"a", "x", "y"}},
		"order is kept":         {[]gpu.Device{whole("b"), whole("a")}, []gpu.Device{whole("a"), whole("c"), whole("b")}, nil, false, []string{"b", "a", "c"}},
		"gone, pods bound":      {[]gpu.Device{whole("a"), whole("b")}, []gpu.Device{whole("b")}, nil, true, []string{"a fault", "b"}},
		"gone, nothing bound":   {[]gpu.Device{whole("a"), whole("b")}, []gpu.Device{whole("b")}, nil, false, []string{"b"}},
		"sick":                  {[]gpu.Device{whole("a")}, []gpu.Device{sick}, nil, true, []string{"a fault"}},
		"recovered":             {[]gpu.Device{sick}, []gpu.Device{whole("a")}, nil, true, []string{"a"}},
		"cordoned device":       {nil, []gpu.Device{mig("b", "x", "y"), whole("a")}, []string{"b"}, true, []string{"x cordoned", "y cordoned", "a"}},
		"cordoned slice":        {nil, []gpu.Device{mig("b", "x", "y")}, []string{"y"}, true, []string{"x", "y cordoned"}},
		"MIG on, pods bound":    {[]gpu.Device{whole("a")}, []gpu.Device{mig("a", "x")}, nil, true, []string{"x"}},
		"instance gone, bound":  {[]gpu.Device{mig("a", "x", "y")}, []gpu.Device{mig("a", "y")}, nil, true, []string{"x fault", "y"}},
		"tells no instances":    {[]gpu.Device{mig("a", "x", "y"), whole("b")}, []gpu.Device{mute, whole("b")}, nil, false, []string{"x fault", "y fault", "b"}},
		"uncounted":             {[]gpu.Device{mig("a", "x")}, []gpu.Device{uncounted}, nil, false, []string{"x fault"}},
		"tells not all":         {[]gpu.Device{mig("a", "x", "y")}, []gpu.Device{partly}, nil, false, []string{"x fault", "y"}},
		"MIG on, tells not all": {[]gpu.Device{whole("a")}, []gpu.Device{partly}, nil, true, []string{"y"}},
		"no instance yet":       {nil, []gpu.Device{mig("a")}, nil, false, nil},
		"everything gone, pods": {[]gpu.Device{whole("a")}, nil, nil, true, []string{"a fault"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := config
			inv := Inventory{}.Update(c, test.before, Holders{Bound: false})
			c.Cordoned = test.closed
			inv = inv.Update(c, test.now, Holders{Bound: test.bound})
			if diff := cmp.Diff(test.want, ids(inv)); diff != "" {
				t.Error(diff)
			}
			if err := inv.Published().Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPlaceIsGone: the driver knows no places, and is not said to have lost one.
func TestPlaceIsGone(t *testing.T) {
	d := mig("a", "x", "y")
	d.Instances[0].MemorySlices = 1
	inv := Inventory{}.Update(config, []gpu.Device{d}, Holders{Bound: true}).Update(config, []gpu.Device{mig("a")}, Holders{Bound: true})
	if s := inv.Slices(); s[0].Fault != withdrawn || s[1].Fault != gone {
		t.Errorf("%+v", s)
	}
}

// TestLocality: a whole GPU is published with where it is, instances are not.
func TestLocality(t *testing.T) {
	here, parts := whole("a"), mig("b", "x")
	here.NUMA, here.NVLink = new(1), 2
	parts.NUMA, parts.NVLink = new(1), 2
	published := Inventory{}.Update(config, []gpu.Device{here, parts}, Holders{Bound: true}).Published()
	if err := published.Validate(); err != nil {
		t.Fatal(err)
	}
	if a, x := published.Slices[0], published.Slices[1]; a.NUMA == nil || *a.NUMA != 1 || a.NVLink != 2 || x.NUMA != nil || x.NVLink != 0 {
		t.Errorf("published %+v and %+v", a, x)
	}
}

func TestOwned(t *testing.T) {
	c := config
	c.Owned = []string{"b"}
	if diff := cmp.Diff([]string{"b"}, ids(Inventory{}.Update(c, []gpu.Device{whole("a"), whole("b")}, Holders{Bound: false}))); diff != "" {
		t.Error(diff)
	}
}

// TestClosed: what was bound before a cordon still fits, what the scheduler sees is closed.
func TestClosed(t *testing.T) {
	c := config
	c.Cordoned = []string{"a"}
	inv := Inventory{}.Update(c, []gpu.Device{whole("a")}, Holders{Bound: true})
	if inv.Published().Slices[0].Healthy || !inv.Packing(kube.DefaultRules())[0].Healthy {
		t.Errorf("published %v, own %v; want closed to others only", inv.Published().Slices[0].Healthy, inv.Packing(kube.DefaultRules())[0].Healthy)
	}
}

// TestFrom: a new agent that hears nothing from the driver goes by what was published, but for what it can tell itself: its own
// configuration, and that somebody serves the node again.
func TestFrom(t *testing.T) {
	sick := whole("b")
	sick.Fault = "Xid 79"
	c := config
	c.Cordoned = []string{"c"}
	inv := Inventory{}.Update(c, []gpu.Device{whole("a"), sick, whole("c"), whole("d")}, Holders{Bound: true})
	c.Cordoned = []string{"d"}
	if diff := cmp.Diff([]string{"a", "b fault", "c", "d cordoned"}, ids(Restore(c, inv.AllUnhealthy(kube.ReasonClosing)))); diff != "" {
		t.Error(diff)
	}
	speechless := kube.Inventory{Slices: []kube.Slice{{ID: "e"}}}
	if diff := cmp.Diff([]string{"e fault"}, ids(Restore(c, speechless))); diff != "" {
		t.Error(diff)
	}
}

// TestShut: a node that takes no pods says so of each slice, and has what it had.
func TestShut(t *testing.T) {
	sick := whole("b")
	sick.Fault = "Xid 79"
	inv := Inventory{}.Update(config, []gpu.Device{whole("a"), sick}, Holders{Bound: true})
	shut := inv.AllUnhealthy(kube.ReasonClosing)
	if a, b := shut.Slices[0], shut.Slices[1]; a.Healthy || a.Reason != kube.ReasonClosing || b.Healthy || b.Reason != kube.ReasonFault {
		t.Errorf("shut: %+v", shut)
	}
	if diff := cmp.Diff([]string{"a", "b fault"}, ids(inv)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kube.NodeResources(inv.Published()), kube.NodeResources(shut)); diff != "" {
		t.Error(diff)
	}
}

// TestNeverShrinks changes machines and configurations at random. While pods are bound every device ID that was there stays, and
// so does the capacity, unless a GPU changed its mode.
func TestNeverShrinks(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		inv, c := Inventory{}, config
		for range 20 {
			var devices []gpu.Device
			for _, uuid := range []string{"a", "b", "c"} {
				if d := whole(uuid); random.IntN(3) > 0 {
					if random.IntN(3) == 0 {
						d.Fault = "broken"
					}
					devices = append(devices, d)
				}
			}
			c.MaxShares = 1 + random.IntN(20)
			next := inv.Update(c, devices, Holders{Bound: true})
			has := map[string]bool{}
			for _, id := range deviceid.All(next.DeviceIDs()) {
				has[id] = true
			}
			for _, id := range deviceid.All(inv.DeviceIDs()) {
				if !has[id] {
					t.Fatalf("seed %d: device ID %s is gone", seed, id)
				}
			}
			before, after := kube.NodeResources(inv.Published()), kube.NodeResources(next.Published())
			for name, q := range before {
				if now := after[name]; now.Cmp(q) < 0 {
					t.Fatalf("seed %d: %s fell from %v to %v", seed, name, q.String(), now.String())
				}
			}
			inv = Restore(c, next.Published())
		}
	}
}

// TestLargestMessage: 16 devices of 7 MIG instances stay far below the 4 MiB, and our own 256 KiB, of a ListAndWatch message.
func TestLargestMessage(t *testing.T) {
	var devices []gpu.Device
	for d := range 16 {
		var instances []string
		for i := range 7 {
			instances = append(instances, "MIG-"+string(rune('a'+d))+string(rune('a'+i)))
		}
		devices = append(devices, mig(string(rune('a'+d)), instances...))
	}
	ids := deviceid.All(Inventory{}.Update(config, devices, Holders{Bound: false}).DeviceIDs())
	if len(ids) != 16*7*16 {
		t.Fatalf("%d device IDs", len(ids))
	}
}

// TestInterfaces: a slice is offered by the device plugin or to claims, and changes once nobody has shares of it.
func TestInterfaces(t *testing.T) {
	claimed := config
	claimed.Claimed = []string{"a", "1"}
	all := config
	all.Claimed = []string{AllDevices}
	devices := []gpu.Device{whole("a"), whole("b"), whole("c")}
	devices[1].Index, devices[2].Index = 1, 2
	before := Inventory{}.Update(config, devices, Holders{})
	for name, test := range map[string]struct {
		inv             Inventory
		config          Config
		holders         Holders
		claims, plugins string // the IDs, with the reason if they take no new pods
	}{
		"nothing configured":     {Inventory{}, config, Holders{}, "", "a, b, c"},
		"by UUID and index":      {Inventory{}, claimed, Holders{Bound: true, Placed: true}, "a, b", "c"},
		"all":                    {Inventory{}, all, Holders{}, "a, b, c", ""},
		"change, nobody":         {before, claimed, Holders{}, "a, b", "c"},
		"change, pods are there": {before, claimed, Holders{Bound: true, Placed: true}, "", "a cordoned, b cordoned, c"},
		"change, only claims":    {before, claimed, Holders{Bound: true, Claims: []string{"c"}}, "a, b, c cordoned", ""},
		"change back, nobody":    {before.Update(claimed, devices, Holders{}), config, Holders{Bound: true, Placed: true}, "", "a, b, c"},
		"change back, a claim":   {before.Update(claimed, devices, Holders{}), config, Holders{Bound: true, Claims: []string{"a"}}, "a cordoned", "b, c"},
		"restart, a claim":       {Inventory{}, config, Holders{Bound: true, Claims: []string{"a"}}, "a cordoned", "b, c"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := test.inv.Update(test.config, devices, test.holders)
			var plugins []string
			for _, s := range inv.Published().Slices {
				plugins = append(plugins, strings.TrimSpace(s.ID+" "+string(s.Reason)))
			}
			if got := strings.Join(ids(Inventory{inv.OfClaims()}), ", "); got != test.claims || strings.Join(plugins, ", ") != test.plugins {
				t.Errorf("claims %q, device plugin %q; want %q and %q", got, plugins, test.claims, test.plugins)
			}
			if len(inv.Packing(kube.DefaultRules())) != len(devices) || len(inv.DeviceIDs()) != len(plugins) {
				t.Errorf("%d slices are admitted by, %d have device IDs", len(inv.Packing(kube.DefaultRules())), len(inv.DeviceIDs()))
			}
		})
	}
}

// TestInterfaceOfPlacements: the places of a GPU for instances on demand exclude each other, so all of them are of one interface, whatever of them is
// in use.
func TestInterfaceOfPlacements(t *testing.T) {
	claimed := config
	claimed.Claimed = []string{"d"}
	one, three := mig("d", "x"), mig("d", "x", "y", "z")
	for _, d := range []gpu.Device{one, three} {
		for i := range d.Instances {
			d.Instances[i].MemorySlices = 1 << i
		}
	}
	ofClaims, ofPlugin := Inventory{}.Update(claimed, []gpu.Device{three}, Holders{}), Inventory{}.Update(config, []gpu.Device{one}, Holders{})
	for name, test := range map[string]struct {
		inv             Inventory
		config          Config
		holders         Holders
		claims, plugins string
	}{
		"configured":                      {Inventory{}, claimed, Holders{}, "x, y, z", ""},
		"change, nobody":                  {ofClaims, config, Holders{}, "", "x, y, z"},
		"change, a claim of one":          {ofClaims, config, Holders{Bound: true, Claims: []string{"y"}}, "x cordoned, y cordoned, z cordoned", ""},
		"restart, a claim":                {Inventory{}, config, Holders{Bound: true, Claims: []string{"y"}}, "x cordoned, y cordoned, z cordoned", ""},
		"change, pods, and a new profile": {ofPlugin, claimed, Holders{Bound: true, Placed: true}, "", "x cordoned, y cordoned, z cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := test.inv.Update(test.config, []gpu.Device{three}, test.holders)
			var plugins []string
			for _, s := range inv.Published().Slices {
				plugins = append(plugins, strings.TrimSpace(s.ID+" "+string(s.Reason)))
			}
			if got := strings.Join(ids(Inventory{inv.OfClaims()}), ", "); got != test.claims || strings.Join(plugins, ", ") != test.plugins {
				t.Errorf("claims %q, device plugin %q; want %q and %q", got, plugins, test.claims, test.plugins)
			}
		})
	}
}

// TestInterfaceOfWithdrawnPlacements: a place that is not offered any more, and stays in the inventory since pods are bound, goes to the other interface
// with its GPU. Pods on other GPUs then do not take the GPU back.
func TestInterfaceOfWithdrawnPlacements(t *testing.T) {
	claimed := config
	claimed.Claimed = []string{"d"}
	all, fewer := mig("d", "x", "y", "z"), mig("d", "x", "y")
	for _, d := range []gpu.Device{all, fewer} {
		for i := range d.Instances {
			d.Instances[i].MemorySlices = 1 << i
		}
	}
	for name, test := range map[string]struct {
		from, to Config
		claims   string
		plugin   int
	}{
		"to claims":     {config, claimed, "x, y, z fault", 0},
		"to the plugin": {claimed, config, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			inv := Inventory{}.Update(test.from, []gpu.Device{all}, Holders{})
			inv = inv.Update(test.to, []gpu.Device{fewer}, Holders{Bound: true})
			for _, holders := range []Holders{{Bound: true}, {Bound: true, Placed: true}} {
				inv = inv.Update(test.to, []gpu.Device{fewer}, holders)
				got := strings.Join(ids(Inventory{inv.OfClaims()}), ", ")
				if n := len(inv.Published().Slices); got != test.claims || n != test.plugin {
					t.Errorf("%+v: claims %q and %d places of the device plugin; want %q and %d", holders, got, n, test.claims, test.plugin)
				}
			}
		})
	}
}
