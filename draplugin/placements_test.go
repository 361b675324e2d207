package draplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// instancesOf returns every instance without media engines that the driver can create on a GPU of a model.
func instancesOf(m *mig.Model) (all []mig.Instance) {
	for i := range m.Profiles {
		for _, start := range m.Profiles[i].Starts {
			if !m.Profiles[i].Media {
				all = append(all, mig.Instance{Profile: &m.Profiles[i], Start: start})
			}
		}
	}
	return all
}

// placementOn returns the slice of an instance that can be made on a GPU.
func placementOn(uuid string, i mig.Instance) inventory.Slice {
	s := sliceOf(fmt.Sprintf("%s.c%dm%d.%d", uuid, i.Profile.Compute, i.Profile.Memory, i.Start), 14, 1024, shared...)
	s.Device, s.Profile, s.Room = "GPU-"+uuid, i.Profile.Name, uint8(mig.Layout{}.With(i).Used)
	return s
}

// onGPUs returns the placements of a node with GPUs of a model, named 0, 1, and so on.
func onGPUs(m *mig.Model, gpus int) (offered []inventory.Slice) {
	for g := range gpus {
		for _, i := range instancesOf(m) {
			offered = append(offered, placementOn(fmt.Sprint(g), i))
		}
	}
	return offered
}

// fits is what hardware admits beside instances, counted without the sets of package mig: no memory slice twice, and no more compute slices than
// there are.
func fits(m *mig.Model, made []mig.Instance, next mig.Instance) bool {
	compute, memory := next.Profile.Compute, map[int]bool{}
	for n := range next.Profile.Memory {
		memory[next.Start+n] = true
	}
	for _, i := range made {
		compute += i.Profile.Compute
		for n := range i.Profile.Memory {
			if memory[i.Start+n] {
				return false
			}
		}
	}
	return compute <= m.Compute
}

// counters are what is left of the counters of a pool, by set and name.
type counters map[string]int64

func countersOf(offered []inventory.Slice) counters {
	left := counters{}
	for _, s := range Resources("n", offered).Pools["n"].Slices {
		for _, set := range s.SharedCounters {
			for name, c := range set.Counters {
				left[set.Name+"/"+name] = c.Value.Value()
			}
		}
	}
	return left
}

// consume takes what a device consumes n times, and reports whether that was left.
func (c counters) consume(d resourceapi.Device, n int64) (ok bool) {
	ok = true
	for _, of := range d.ConsumesCounters {
		for name, amount := range of.Counters {
			key := of.CounterSet + "/" + name
			c[key] -= n * amount.Value.Value()
			ok = ok && c[key] >= 0
		}
	}
	return ok
}

// TestCounters: the counters admit a set of placements if and only if the hardware admits it. Without the counter of a memory slice that an instance of
// one slice can have, they do not.
func TestCounters(t *testing.T) {
	for _, m := range mig.Models() {
		t.Run(m.Name, func(t *testing.T) {
			wrong, visited := misjudged(m, "")
			for _, w := range wrong {
				t.Error(w)
			}
			all := instancesOf(m)
			t.Logf("%d placements, %d sets that fit", len(all), visited)
			if visited <= len(all) {
				t.Errorf("%d sets were tried", visited)
			}
			controls := 0
			for _, i := range all {
				if counter := fmt.Sprintf("memory-slice-%d", i.Start); i.Profile.Memory == 1 {
					controls++
					if wrong, _ := misjudged(m, counter); len(wrong) == 0 {
						t.Errorf("without %s, all sets are judged well", counter)
					}
				}
			}
			if controls == 0 {
				t.Error("no counter was left out")
			}
		})
	}
}

// misjudged returns where the counters of a model's placements, without one of them if it is named, differ from the hardware, and how many sets of
// placements they admit. Each admitted set is visited once, and each set that is not contains one that is admitted with one placement too many.
func misjudged(m *mig.Model, without string) (wrong []string, visited int) {
	all := instancesOf(m)
	var devices []resourceapi.Device
	var offered []inventory.Slice
	for _, i := range all {
		s := placementOn("0", i)
		d := deviceOf(s)
		for _, of := range d.ConsumesCounters {
			delete(of.Counters, without)
		}
		offered, devices = append(offered, s), append(devices, d)
	}
	left := countersOf(offered)
	var extend func(from int, made []mig.Instance)
	extend = func(from int, made []mig.Instance) {
		visited++
		for i := from; i < len(all); i++ {
			admitted := left.consume(devices[i], 1)
			want := fits(m, made, all[i])
			if admitted != want {
				wrong = append(wrong, fmt.Sprintf("beside %v, the counters admit %s: %t, the hardware: %t", made, devices[i].Name, admitted, want))
			}
			if admitted && want {
				extend(i+1, append(slices.Clip(made), all[i]))
			}
			left.consume(devices[i], -1)
		}
	}
	extend(0, nil)
	return wrong, visited
}

// TestPoolOfPlacements: a pool has what the API admits in each ResourceSlice, all counter sets that its devices refer to, and no device twice.
func TestPoolOfPlacements(t *testing.T) {
	m := modelNamed(t, "A100-80GB")
	for gpus, want := range map[int][]string{1: {"1 sets", "18 devices"}, 8: {"8 sets", "64 devices", "64 devices", "16 devices"},
		9: {"8 sets", "1 sets", "64 devices", "64 devices", "34 devices"}} {
		var got []string
		names, defined := sets.New[string](), sets.New[string]()
		for _, s := range Resources("n", onGPUs(m, gpus)).Pools["n"].Slices {
			for _, set := range s.SharedCounters {
				for name := range set.Counters {
					defined.Insert(set.Name + "/" + name)
				}
			}
			switch {
			case len(s.Devices) == 0:
				got = append(got, fmt.Sprint(len(s.SharedCounters), " sets"))
			case len(s.SharedCounters) > 0:
				t.Error("a ResourceSlice has devices and counters")
			default:
				got = append(got, fmt.Sprint(len(s.Devices), " devices"))
			}
			for _, d := range s.Devices {
				if names.Has(d.Name) {
					t.Errorf("two devices are named %s", d.Name)
				}
				names.Insert(d.Name)
				for _, of := range d.ConsumesCounters {
					for name := range of.Counters {
						if !defined.Has(of.CounterSet + "/" + name) {
							t.Errorf("%s consumes %s/%s, which is not defined", d.Name, of.CounterSet, name)
						}
					}
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d GPUs (-want +got):\n%s", gpus, diff)
		}
	}
}

func modelNamed(t *testing.T, name string) *mig.Model {
	t.Helper()
	m, err := mig.ModelNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPlacementDevice: a placement says what its instance will be, and has no UUID before it is made.
func TestPlacementDevice(t *testing.T) {
	m := modelNamed(t, "A100-80GB")
	p, _ := m.Profile("3g.40gb")
	d := deviceOf(placementOn("1b2c", mig.Instance{Profile: p, Start: 4}))
	want := map[string]string{
		"model": "H200", "sms": "14", "isolation": "mps", "profile": "3g.40gb", "parentUUID": "GPU-1b2c", "placementStart": "4",
		"capacity sm": "100: 100 of 15 to 100 by 1", "capacity memory": "1Gi: 1Gi of 1Mi to 1Gi by 1Mi", "capacity shares": "16: 1 of 1",
	}
	if diff := cmp.Diff(want, text(d)); diff != "" || d.Name != "1b2c-c3m4-4" {
		t.Errorf("device %s (-want +got):\n%s", d.Name, diff)
	}
}

// TestAllocationOrder: the first device that fits leaves the larger placements free as long as it can, and whole GPUs come before placements.
func TestAllocationOrder(t *testing.T) {
	m := modelNamed(t, "A100-80GB")
	offered := append(onGPUs(m, 2), sliceOf("GPU-whole", 108, 81920, shared...))
	var names []string
	for _, s := range Resources("n", offered).Pools["n"].Slices {
		for _, d := range s.Devices {
			names = append(names, d.Name)
		}
	}
	first := "gpu-whole 0-c1m1-6 0-c1m1-5 0-c1m1-4 0-c1m1-3 0-c1m1-2 0-c1m1-1 0-c1m1-0 0-c1m2-6 0-c1m2-4 0-c2m2-4"
	if got := strings.Join(names, " "); !strings.HasPrefix(got, first+" ") || !strings.Contains(got, " 0-c3m4-0 0-c4m4-0 0-c7m8-0 1-c1m1-6 ") {
		t.Errorf("the devices are %s", got)
	}
}

// scheduler allocates claims of a node's devices as kube-scheduler does.
type scheduler struct {
	slices  []*resourceapi.ResourceSlice
	state   structured.AllocatedState
	classes classes
	cache   *cel.Cache
}

type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) { panic("not called") }

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

var features = structured.Features{
	PrioritizedList: true, PartitionableDevices: true, ConsumableCapacity: true, DeviceTaints: true, DeviceBindingAndStatus: true,
}

func newScheduler(offered []inventory.Slice) *scheduler {
	s := &scheduler{cache: cel.NewCache(64, cel.Features{EnableConsumableCapacity: true}), state: structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}}
	pool := Resources("n", offered).Pools["n"]
	for i, part := range pool.Slices {
		s.slices = append(s.slices, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n-", i)}, Spec: resourceapi.ResourceSliceSpec{
			Driver: Driver, NodeName: new("n"), Devices: part.Devices, SharedCounters: part.SharedCounters,
			Pool: resourceapi.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
		}})
	}
	return s
}

// allocate allocates a claim of a device that a CEL expression selects, all of it unless sm says how much, and returns the device's name; none if there
// is none.
func (s *scheduler) allocate(t *testing.T, expression, sm string) string {
	t.Helper()
	request := &resourceapi.ExactDeviceRequest{
		DeviceClassName: Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
	}
	if sm != "" {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			CapacitySM: resource.MustParse(sm), CapacityMemory: resource.MustParse("256Mi"),
		}}
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("c", len(s.state.AllocatedSharedDeviceIDs)))}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}}
	a, err := structured.NewAllocator(t.Context(), features, s.state, s.classes, s.slices, s.cache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := a.Allocate(context.Background(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return "none"
	}
	r := results[0].Devices.Results[0]
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	s.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	s.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	return r.Device
}

func at(i mig.Instance) string {
	return fmt.Sprintf(`has(device.attributes["gshare.dev"].profile) && device.attributes["gshare.dev"].profile == %q && device.attributes["gshare.dev"].placementStart == %d`, i.Profile.Name, i.Start)
}

// TestPairs: Kubernetes' own allocator gives two claims two placements of a GPU if and only if the hardware admits both instances.
func TestPairs(t *testing.T) {
	m := modelNamed(t, "A30-24GB")
	for _, first := range instancesOf(m) {
		for _, second := range instancesOf(m) {
			if first == second {
				continue // shares of one instance
			}
			s := newScheduler(onGPUs(m, 1))
			if s.allocate(t, at(first), "") == "none" {
				t.Fatalf("%s is not allocated on an empty GPU", at(first))
			}
			if got := s.allocate(t, at(second), "") != "none"; got != fits(m, []mig.Instance{first}, second) {
				t.Errorf("beside %s, %s is allocated: %t", at(first), at(second), got)
			}
		}
	}
}

// TestProfiles: claims by profile get seven small instances of each GPU, of several ResourceSlices; a large one goes where room is left, and waits
// otherwise. Shares of one instance consume its counters once.
func TestProfiles(t *testing.T) {
	const small, half, whole = `device.attributes["gshare.dev"].?profile.orValue("") == "1g.10gb"`,
		`device.attributes["gshare.dev"].?profile.orValue("") == "3g.40gb"`, `device.attributes["gshare.dev"].?profile.orValue("") == "7g.80gb"`
	s := newScheduler(append(onGPUs(modelNamed(t, "A100-80GB"), 8), sliceOf("GPU-whole", 108, 81920, shared...)))
	if len(s.slices) != 4 {
		t.Fatalf("%d ResourceSlices", len(s.slices))
	}
	var got []string
	for _, c := range []struct{ expression, sm string }{{small, ""}, {small, ""}, {half, ""}, {half, ""}, {whole, ""}, {half, "50"}, {half, "50"}, {half, "51"}} {
		got = append(got, s.allocate(t, c.expression, c.sm))
	}
	want := "0-c1m1-6 0-c1m1-5 0-c3m4-0 1-c3m4-4 2-c7m8-0 1-c3m4-0 1-c3m4-0 3-c3m4-4"
	if strings.Join(got, " ") != want {
		t.Errorf("allocated %v, want %s", got, want)
	}
	last := ""
	for n := 0; last != "none"; n++ {
		if last = s.allocate(t, small, ""); last == "none" && n != 1+4+4*7 {
			t.Errorf("%d more small instances", n)
		}
	}
	if got := s.allocate(t, whole, ""); got != "none" {
		t.Errorf("a whole GPU is allocated as %s", got)
	}
}

// TestPlacementTaint: a placement that takes no claims says why, and the others take them.
func TestPlacementTaint(t *testing.T) {
	m := modelNamed(t, "A100-80GB")
	offered := onGPUs(m, 1)
	offered[0].Healthy, offered[0].Reason = false, kube.ReasonUsed
	var tainted []string
	for _, s := range Resources("n", offered).Pools["n"].Slices {
		for _, d := range s.Devices {
			if len(d.Taints) > 0 {
				tainted = append(tainted, d.Name+" "+d.Taints[0].Key)
			}
		}
	}
	if diff := cmp.Diff([]string{DeviceName(offered[0].ID) + " gshare.dev/used"}, tainted); diff != "" {
		t.Error(diff)
	}
}

// TestPlacedOnPlacement: a claim of a placement is granted the placement, alone or a part of it.
func TestPlacedOnPlacement(t *testing.T) {
	offered := onGPUs(modelNamed(t, "A100-80GB"), 1)
	for sm, class := range map[string]share.Isolation{"100": share.Exclusive, "50": share.MPS} {
		parts, err := Parts(claimOf(result("0-c1m1-3", sm, "1Gi")), "n")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Placed(parts, offered)
		if err != nil || len(got) != 1 || got[0].Slice != "0.c1m1.3" || got[0].Class != class {
			t.Errorf("%s%%: %+v, %v", sm, got, err)
		}
	}
}

// TestDroppedCounters: where the API server drops the counters of placements, only the other devices are offered.
func TestDroppedCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offered := append(onGPUs(modelNamed(t, "A30-24GB"), 1), sliceOf("GPU-whole", 108, 81920, shared...))
		node := &offering{}
		node.set(Offer{Known: true, Slices: offered})
		var published []string // the names of devices
		publish := func(_ context.Context, r resourceslice.DriverResources) error {
			published = nil
			for _, s := range r.Pools["n"].Slices {
				for _, d := range s.Devices {
					published = append(published, d.Name)
				}
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dropped := make(chan struct{})
		p := &Plugin{NodeName: "n", Node: node, Log: slog.New(slog.DiscardHandler)}
		go p.publishOffers(ctx, publish, dropped)
		s := service{Plugin: p, droppedCounters: func() { close(dropped) }}
		lacks := func(d resourceapi.Device) *resourceslice.DroppedFieldsError {
			slice := func(d resourceapi.Device) *resourceapi.ResourceSlice {
				return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{d}}}
			}
			stored := d
			stored.ConsumesCounters, stored.Taints = nil, nil
			return &resourceslice.DroppedFieldsError{DesiredSlice: slice(d), ActualSlice: slice(stored)}
		}
		s.HandleError(ctx, errors.New("something else"), "")
		s.HandleError(ctx, lacks(resourceapi.Device{Taints: []resourceapi.DeviceTaint{{}}}), "")
		synctest.Wait()
		if len(published) != len(offered) {
			t.Errorf("published %v", published)
		}
		s.HandleError(ctx, fmt.Errorf("publish: %w", lacks(deviceOf(offered[0]))), "")
		synctest.Wait()
		if diff := cmp.Diff([]string{"gpu-whole"}, published); diff != "" {
			t.Error(diff)
		}
	})
}
