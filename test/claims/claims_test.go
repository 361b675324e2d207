// Package claims_test tests what gshare's driver for resource claims publishes on a real API server, under the stock scheduler.
package claims_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunWith(func(p *controlplane.ControlPlane) int {
		plane = p
		if _, err := p.StartScheduler(context.Background(), "stock", nil, controlplane.SchedulerOptions{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}

type cluster struct {
	kubernetes.Interface
	t   *testing.T
	ctx context.Context
}

func connect(t *testing.T) *cluster {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.Config(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return &cluster{client, t, ctx}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// wait polls until done returns an empty string. If that does not happen in time, it fails the test with the last string.
func (c *cluster) wait(done func() string) {
	c.t.Helper()
	last := ""
	err := wait.PollUntilContextCancel(c.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		last = done()
		return last == "", nil
	})
	if err != nil {
		c.t.Fatalf("%v: %s", err, last)
	}
}

func slice(id string, sms int, memoryMiB int64, classes ...share.Isolation) inventory.Slice {
	return inventory.Slice{
		Slice: kube.Slice{
			ID: id, Device: id, Model: "H200", SMs: sms, MemoryMiB: memoryMiB, Classes: classes, Healthy: true, MaxShares: 16, NUMA: new(0),
		},
		Claims: true, Properties: gpu.Properties{DriverVersion: "580.65.06", ComputeCapability: "9.0"},
	}
}

// publish writes the ResourceSlices of a node as the driver does, and returns them as the API server stored them.
func (c *cluster) publish(node string, offered []inventory.Slice) (stored []*resourceapi.ResourceSlice, err error) {
	pool := draplugin.Resources(node, offered).Pools[node]
	for i, s := range pool.Slices {
		object := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: draplugin.Driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		}
		created, err := c.ResourceV1().ResourceSlices().Create(c.ctx, object, metav1.CreateOptions{})
		if err != nil {
			return stored, err
		}
		c.t.Cleanup(func() {
			_ = c.ResourceV1().ResourceSlices().Delete(context.Background(), created.Name, metav1.DeleteOptions{})
		})
		stored = append(stored, created)
	}
	return stored, nil
}

// TestDevicesAreValid: the API server stores what the driver publishes without dropping any field.
func TestDevicesAreValid(t *testing.T) {
	c := connect(t)
	mps := []share.Isolation{share.Exclusive, share.MPS}
	failed := slice("GPU-1", 132, 143771, mps...)
	failed.Healthy, failed.Reason = false, kube.ReasonFault
	part := slice("MIG-00000000-0000-0000-0000-000000000000", 14, 9728, mps...)
	part.Profile = "1g.10gb+me"
	silent := slice("GPU_without.a label", 108, 81920, mps...)
	silent.Properties = gpu.Properties{}
	offered := []inventory.Slice{
		slice("GPU-0", 132, 143771, mps...), failed, part, silent, slice("GPU-2", 108, 81920, share.Exclusive), slice("GPU-3", 1, 1, mps...),
		slice("GPU-4", 2, 2, mps...), slice("GPU-5", 3, int64(share.MaxMemory/share.MiB), mps...),
	}
	for i := range 100 { // more than fit into one ResourceSlice
		offered = append(offered, slice(fmt.Sprint("GPU-x", i), 132, 143771, mps...))
	}
	stored, err := c.publish("valid", offered)
	c.must(err)
	pool := draplugin.Resources("valid", offered).Pools["valid"]
	for i, s := range stored {
		for n := range s.Spec.Devices {
			d := &s.Spec.Devices[n]
			for k := range d.Taints {
				d.Taints[k].TimeAdded = nil
			}
			if diff := cmp.Diff(pool.Slices[i].Devices[n], *d); diff != "" {
				t.Errorf("device %s is stored otherwise (-published +stored):\n%s", d.Name, diff)
			}
		}
	}
}

// TestInvalidDevice is the negative control of TestDevicesAreValid: the API server does validate the request policies of devices.
func TestInvalidDevice(t *testing.T) {
	c := connect(t)
	_, err := c.publish("invalid", []inventory.Slice{slice("GPU-0", 132, 0, share.MPS), slice("GPU-0", 132, 1, share.MPS)})
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want that the object is invalid", err)
	}
}

const class = draplugin.Driver

// prepare creates a node, the DeviceClass and namespaces.
func (c *cluster) prepare(node string, namespaces ...string) {
	c.t.Helper()
	_, err := c.CoreV1().Nodes().Create(c.ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"node": node}},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("110"), v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("64Gi")},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	c.t.Cleanup(func() { _ = c.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}) })
	_, err = c.ResourceV1().DeviceClasses().Create(c.ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.driver == "gshare.dev" && device.allowMultipleAllocations`,
		}}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		c.must(err)
	}
	for _, name := range namespaces {
		_, err := c.CoreV1().Namespaces().Create(c.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.must(err)
	}
}

// claim creates a claim for a device that the CEL expressions select, and a pod on the node that uses it.
func (c *cluster) claim(namespace, name, node string, requests map[resourceapi.QualifiedName]string, selectors ...string) {
	c.t.Helper()
	capacity := &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	for n, q := range requests {
		capacity.Requests[n] = resource.MustParse(q)
	}
	request := &resourceapi.ExactDeviceRequest{DeviceClassName: class, Capacity: capacity}
	for _, expression := range selectors {
		request.Selectors = append(request.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	_, err := c.ResourceV1().ResourceClaims(namespace).Create(c.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}}}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.CoreV1().Pods(namespace).Create(c.ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeSelector:   map[string]string{"node": node},
			ResourceClaims: []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
			Containers:     []v1.Container{{Name: "main", Image: "i", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}}}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
}

// allocated waits until a claim is allocated, and returns the placement that the driver derives from the allocation.
func (c *cluster) allocated(namespace, name, node string, offered []inventory.Slice) kube.PlacedVGPU {
	c.t.Helper()
	var claim *resourceapi.ResourceClaim
	c.wait(func() string {
		var err error
		if claim, err = c.ResourceV1().ResourceClaims(namespace).Get(c.ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if claim.Status.Allocation == nil {
			return "claim " + name + " is not allocated: " + c.condition(namespace, name)
		}
		return ""
	})
	parts, err := draplugin.Parts(claim, node)
	c.must(err)
	vgpus, err := draplugin.Placed(parts, offered)
	c.must(err)
	return vgpus[0]
}

// condition returns why a pod is not scheduled.
func (c *cluster) condition(namespace, name string) string {
	pod, err := c.CoreV1().Pods(namespace).Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodScheduled {
			return condition.Message
		}
	}
	return ""
}

// TestStockScheduler: under the stock scheduler, claims of several namespaces share a GPU until it is fully allocated. The consumed capacity
// is rounded up to what the node can enforce.
func TestStockScheduler(t *testing.T) {
	c := connect(t)
	c.prepare("shared", "a", "b")
	mps := []share.Isolation{share.Exclusive, share.MPS}
	offered := []inventory.Slice{slice("GPU-A", 132, 81920, mps...)}
	_, err := c.publish("shared", offered)
	c.must(err)

	for _, test := range []struct {
		namespace, name string
		requests        map[resourceapi.QualifiedName]string
		sm              share.PerMille
		memory          share.Bytes
	}{
		{"a", "quarter", map[resourceapi.QualifiedName]string{"sm": "24", "memory": "16Gi"}, 240, 16 << 30},
		{"b", "least", map[resourceapi.QualifiedName]string{"sm": "1", "memory": "1"}, 20, 1 << 20},
		{"b", "rounded", map[resourceapi.QualifiedName]string{"sm": "5500m", "memory": "1000M"}, 60, 954 << 20},
	} {
		c.claim(test.namespace, test.name, "shared", test.requests)
		got := c.allocated(test.namespace, test.name, "shared", offered)
		if got.Slice != "GPU-A" || got.Class != share.MPS || got.Share.SMLimit != test.sm || got.Share.Memory != test.memory {
			t.Errorf("%s: got %+v, want %d per mille and %d bytes", test.name, got, test.sm, test.memory)
		}
		c.countedAlike(test.namespace, test.name, offered[0], test.requests)
	}
	refused := map[string]map[resourceapi.QualifiedName]string{
		"all":          nil,
		"too-many-sms": {"sm": "69", "memory": "1Gi"},
		"too-large":    {"sm": "10", "memory": "64Gi"},
	}
	for name, requests := range refused {
		c.claim("a", name, "shared", requests)
	}
	c.claim("a", "rest", "shared", map[resourceapi.QualifiedName]string{"sm": "68", "memory": "62Gi"})
	c.allocated("a", "rest", "shared", offered) // after the scheduler has tried the claims that do not fit
	for name := range refused {
		c.wait(func() string {
			claim, err := c.ResourceV1().ResourceClaims("a").Get(c.ctx, name, metav1.GetOptions{})
			c.must(err)
			if claim.Status.Allocation != nil {
				t.Fatalf("%s was allocated beside all others", name)
			}
			if c.condition("a", name) == "" {
				return name + " was not tried"
			}
			return ""
		})
	}
}

// TestTaint: a failed GPU gets no new claims, while the other GPU of its node does.
func TestTaint(t *testing.T) {
	c := connect(t)
	c.prepare("tainted", "c")
	failed, works := slice("GPU-A", 132, 81920, share.MPS), slice("GPU-B", 132, 81920, share.MPS)
	failed.Healthy, failed.Reason = false, kube.ReasonFault
	offered := []inventory.Slice{failed, works}
	_, err := c.publish("tainted", offered)
	c.must(err)
	c.claim("c", "one", "tainted", map[resourceapi.QualifiedName]string{"sm": "60"})
	if got := c.allocated("c", "one", "tainted", offered); got.Slice != "GPU-B" {
		t.Errorf("got %+v, want GPU-B", got)
	}
	c.claim("c", "two", "tainted", map[resourceapi.QualifiedName]string{"sm": "60"})
	c.wait(func() string {
		if c.condition("c", "two") == "" {
			return "the second claim was not tried"
		}
		return ""
	})
	claim, err := c.ResourceV1().ResourceClaims("c").Get(c.ctx, "two", metav1.GetOptions{})
	c.must(err)
	if claim.Status.Allocation != nil {
		t.Errorf("the second claim got %+v", claim.Status.Allocation)
	}
}
