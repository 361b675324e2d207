package verdict

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// claimWorld is a node with one GPU for claims, of which another pod has 60 % of the SMs and 64Gi.
type claimWorld struct {
	pod     *v1.Pod
	claim   *resourceapi.ResourceClaim // nil: it does not exist
	other   *resourceapi.ResourceClaim
	offered []inventory.Slice
}

func newClaimWorld() *claimWorld {
	w := &claimWorld{claim: claimFor("asked", "50", "8Gi"), other: claimFor("holder", "60", "64Gi")}
	w.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "asked"}}
	w.pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("half")}}
	w.pod.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}}}}
	w.pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("asked-gpu")}}
	w.offered = []inventory.Slice{{Claims: true, Slice: kube.Slice{
		ID: "GPU-1", Device: "GPU-1", Model: "H200", SMs: 132, MemoryMiB: 81920, Classes: []share.Isolation{share.MPS}, Healthy: true, MaxShares: 4,
	}}}
	allocate(w.other, "60", "64Gi")
	return w
}

func claimFor(pod, sm, memory string) *resourceapi.ResourceClaim {
	capacity := &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
		"sm": resource.MustParse(sm), "memory": resource.MustParse(memory),
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: pod + "-gpu"}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: draplugin.Driver, Capacity: capacity}}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod}}
	return claim
}

func allocate(claim *resourceapi.ResourceClaim, sm, memory string) {
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
		Request: "r", Driver: draplugin.Driver, Pool: "n1", Device: "gpu-1", ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			"sm": resource.MustParse(sm), "memory": resource.MustParse(memory), "shares": resource.MustParse("1"),
		},
	}}}}
}

func (w *claimWorld) report(t *testing.T) *Report {
	t.Helper()
	client := fake.NewClientset(w.pod, w.other)
	if w.claim != nil {
		if err := client.Tracker().Add(w.claim); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range draplugin.Resources("n1", w.offered).Pools["n1"].Slices {
		object := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n1-", i)}}
		object.Spec = resourceapi.ResourceSliceSpec{Driver: draplugin.Driver, Pool: resourceapi.ResourcePool{Name: "n1"}, Devices: s.Devices}
		if err := client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	s, err := cluster.Read(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := cluster.ReadClaims(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return ExplainClaims(s, w.pod, claims)
}

func TestExplainClaims(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*claimWorld)
		reason  Reason
		summary string // part of it
		device  string // what the report says of GPU-1
	}{
		"too many SMs": {nil, ClaimWaits, "not allocated: asked-gpu", "r: 50 sm, and 40 is left"},
		"too much memory": {func(w *claimWorld) { w.claim = claimFor("asked", "20", "32Gi") }, ClaimWaits, "not allocated",
			"r: 32Gi memory, and 16Gi is left"},
		"would fit": {func(w *claimWorld) { w.claim = claimFor("asked", "20", "8Gi") }, ClaimWaits, "not allocated", "left: 16Gi memory, 3 shares, 40 sm"},
		"failed": {func(w *claimWorld) {
			w.claim = claimFor("asked", "20", "8Gi")
			w.offered[0].Healthy, w.offered[0].Reason = false, kube.ReasonFault
		}, ClaimWaits, "not allocated", "left: 16Gi memory, 3 shares, 40 sm fault"},
		"all of a device": {func(w *claimWorld) { w.claim.Spec.Devices.Requests[0].Exactly.Capacity = nil }, ClaimWaits, "not allocated",
			"r: 80Gi memory, and 16Gi is left; r: 100 sm, and 40 is left"},
		"alternatives": {func(w *claimWorld) {
			exactly := w.claim.Spec.Devices.Requests[0].Exactly
			w.claim.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{
				{Name: "a", DeviceClassName: draplugin.Driver, Capacity: exactly.Capacity},
			}}
		}, ClaimWaits, "not allocated", "r/a: 50 sm, and 40 is left"},
		"no device":    {func(w *claimWorld) { w.offered = nil }, ClaimWaits, "no node offers", ""},
		"no claim":     {func(w *claimWorld) { w.claim = nil }, NoClaim, "ResourceClaimTemplate half", ""},
		"not bound":    {func(w *claimWorld) { allocate(w.claim, "20", "8Gi") }, NoNode, "not bound", ""},
		"another's":    {func(w *claimWorld) { w.claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "nic" }, NoShare, "no resource of gshare", ""},
		"it has ended": {func(w *claimWorld) { w.pod.Status.Phase = v1.PodSucceeded }, Ended, "Succeeded", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newClaimWorld()
			if test.change != nil {
				test.change(w)
			}
			r := w.report(t)
			if r.Reason != test.reason || !strings.Contains(r.Summary, test.summary) {
				t.Errorf("%s: %s; want %s with %q", r.Reason, r.Summary, test.reason, test.summary)
			}
			says := ""
			for _, n := range r.Nodes {
				for _, s := range n.Slices {
					says += strings.TrimSpace(strings.Join(s.Says, "; ") + " " + s.Closed)
					if diff := cmp.Diff([]string{"ml/holder"}, s.Holders); diff != "" || s.Model != "H200" {
						t.Errorf("%+v: %s", s, diff)
					}
				}
			}
			if says != test.device {
				t.Errorf("the device: %q, want %q", says, test.device)
			}
		})
	}
}

func TestExplainPlacedClaims(t *testing.T) {
	w := newClaimWorld()
	allocate(w.claim, "24", "16Gi")
	w.pod.Spec.NodeName = "n1"
	want := []Place{{
		Container: "main", Node: "n1", Slice: "GPU-1", Model: "H200", Class: "mps", Share: "24% SM, 100% time, 16384 MiB",
		Beside: []Neighbor{{"ml/holder", "60% SM, 100% time, 65536 MiB"}},
	}}
	if r := w.report(t); r.Reason != Placed {
		t.Errorf("%+v", r)
	} else if diff := cmp.Diff(want, r.Places); diff != "" {
		t.Error(diff)
	}
	w.offered = nil
	if r := w.report(t); len(r.Places) != 1 || !r.Places[0].Missing || r.Places[0].Slice != "gpu-1" {
		t.Errorf("a device that is gone: %+v", r.Places)
	}
}

// TestExplainPlacements: MIG instances that cannot be made beside one that a claim has say so, and those of other memory slices or GPUs do not.
func TestExplainPlacements(t *testing.T) {
	w := newClaimWorld()
	w.claim = claimFor("asked", "20", "1Gi")
	at := func(id, gpu string, room uint8) inventory.Slice {
		s := w.offered[0]
		s.ID, s.Device, s.Profile, s.Room = id, gpu, "1g.10gb", room
		return s
	}
	w.offered = []inventory.Slice{at("GPU-1", "GPU-X", 0b11), at("x.1", "GPU-X", 0b10), at("x.2", "GPU-X", 0b100), at("y.1", "GPU-Y", 0b10)}
	got := map[string]string{}
	for _, n := range w.report(t).Nodes {
		for _, s := range n.Slices {
			got[s.ID], _, _ = strings.Cut(strings.Join(s.Says, "; "), ":")
		}
	}
	want := map[string]string{"gpu-1": "left", "x-1": "cannot be made beside gpu-1, which is allocated", "x-2": "left", "y-1": "left"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestClaimDriver: the command knows the driver by the name that the driver has.
func TestClaimDriver(t *testing.T) {
	if cluster.ClaimDriver != draplugin.Driver {
		t.Errorf("%s, want %s", cluster.ClaimDriver, draplugin.Driver)
	}
}

// TestExplainManyPlacements: a cluster of 20 nodes, each with the 144 instances of eight GPUs and eight claims, is explained as well. What each device has
// is looked for a few times: a look at all devices for each of them and each claim would take long here, and hours on ten times as many nodes.
func TestExplainManyPlacements(t *testing.T) {
	w := newClaimWorld()
	c := &cluster.Claims{Claims: []resourceapi.ResourceClaim{*w.claim}}
	for n := range 20 {
		node := fmt.Sprint("n", n)
		for i := range 144 {
			s := w.offered[0]
			s.ID, s.Device, s.Profile, s.Room = fmt.Sprint("x.", i), fmt.Sprint("GPU-", i/18), "1g.10gb", 1<<(i%8)
			for _, part := range draplugin.Resources(node, []inventory.Slice{s}).Pools[node].Slices {
				for _, d := range part.Devices {
					c.Devices = append(c.Devices, cluster.ClaimDevice{Node: node, Device: d})
				}
			}
		}
		for i := range 8 {
			claim := claimFor(fmt.Sprint("holder", n, "-", i), "60", "64Gi")
			allocate(claim, "60", "64Gi")
			r := &claim.Status.Allocation.Devices.Results[0]
			r.Pool, r.Device = node, draplugin.DeviceName(fmt.Sprint("x.", 18*i))
			c.Claims = append(c.Claims, *claim)
		}
	}
	r := ExplainClaims(&cluster.Snapshot{}, w.pod, c)
	if r.Reason != ClaimWaits || len(r.Nodes) != 20 || len(r.Nodes[19].Slices) != 144 {
		t.Fatalf("%s, %d nodes", r.Reason, len(r.Nodes))
	}
	if s := r.Nodes[19].Slices[18]; len(s.Holders) != 1 || !strings.Contains(strings.Join(s.Says, "; "), "40 is left") {
		t.Errorf("%+v", s)
	}
}
