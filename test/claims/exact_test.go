//go:build spike

package claims_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/plugins"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// This file is not part of CI. It explores whether a scheduler profile can choose the devices of claims itself, by wrapping the stock plugin.
// docs/adr/0033-claims-are-not-packed-exactly.md describes the findings.

// exactName is the name of the wrapped plugin, which must differ from that of the stock one.
const exactName = "ExactDynamicResources"

// packed is the key of the taint that keeps schedulers which merely sum up requests away from devices.
const packed = draplugin.TaintPrefix + "packed"

// exact wraps the stock plugin for claims. Of gshare's devices, it shows the stock plugin only those chosen for the pod, one on each node.
type exact struct {
	*dynamicresources.DynamicResources
	handle fwk.Handle
	view   *view
	books  *books
	wrong  atomic.Int64 // allocations that differ from what was chosen
}

// handle is a framework handle that gives the stock plugin the view as its lister of ResourceSlices.
type handle struct {
	fwk.Handle
	view *view
}

func (h handle) SharedDRAManager() fwk.SharedDRAManager {
	return manager{h.Handle.SharedDRAManager(), h.view}
}

type manager struct {
	fwk.SharedDRAManager
	view *view
}

func (m manager) ResourceSlices() fwk.ResourceSliceLister { return m.view }

// view lists the cluster's ResourceSlices, with only the chosen one of gshare's devices on each node.
type view struct {
	fwk.ResourceSliceLister
	mu     sync.Mutex        // held during PreFilter of the stock plugin, the only place where it reads the list
	chosen map[string]string // devices by node
}

func (v *view) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	all, err := v.ResourceSliceLister.ListWithDeviceTaintRules()
	var seen []*resourceapi.ResourceSlice
	for _, s := range all {
		if s.Spec.Driver != draplugin.Driver {
			seen = append(seen, s)
			continue
		}
		shown := *s // the pool stays complete, with fewer devices
		shown.Spec.Devices = nil
		for _, d := range s.Spec.Devices {
			if v.chosen[s.Spec.Pool.Name] == d.Name {
				d.Taints = slices.DeleteFunc(slices.Clone(d.Taints), func(t resourceapi.DeviceTaint) bool { return t.Key == packed })
				shown.Spec.Devices = []resourceapi.Device{d}
			}
		}
		seen = append(seen, &shown)
	}
	return seen, err
}

// books records what this scheduler has reserved on the devices: percentages of SMs, by node and device. It stands in for the slot tables of
// SlotPacking. It chooses the last device that fits, which no first-fit algorithm would.
type books struct {
	mu       sync.Mutex
	devices  map[string][]string
	reserved map[[2]string]int64
	of       map[types.UID][2]string // by claim
}

// choose returns a device for each node on which one fits.
func (b *books) choose(percent int64) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	chosen := map[string]string{}
	for node, devices := range b.devices {
		for _, d := range devices {
			if b.reserved[[2]string{node, d}]+percent <= 100 {
				chosen[node] = d
			}
		}
	}
	return chosen
}

func (b *books) reserve(claim types.UID, node, device string, percent int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved[[2]string{node, device}] += percent
	b.of[claim] = [2]string{node, device}
}

// unreserve undoes a reservation, if there is one.
func (b *books) unreserve(claim types.UID, percent int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.of[claim]; ok {
		b.reserved[at] -= percent
		delete(b.of, claim)
	}
}

func (e *exact) Name() string { return exactName }

// claimsOf returns the claims of a pod, and the percentage of SMs that each requests.
func (e *exact) claimsOf(pod *v1.Pod) (claims []*resourceapi.ResourceClaim, percent int64) {
	for _, c := range pod.Spec.ResourceClaims {
		claim, err := e.handle.SharedDRAManager().ResourceClaims().Get(pod.Namespace, *c.ResourceClaimName)
		if err != nil {
			continue
		}
		sm := claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests[draplugin.CapacitySM]
		claims, percent = append(claims, claim), sm.Value()
	}
	return claims, percent
}

const choiceKey = "Choice" + exactName

type choice map[string]string

func (c choice) Clone() fwk.StateData { return c }

func (e *exact) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	_, percent := e.claimsOf(pod)
	chosen := e.books.choose(percent)
	state.Write(choiceKey, choice(chosen))
	e.view.mu.Lock()
	defer e.view.mu.Unlock()
	e.view.chosen = chosen
	return e.DynamicResources.PreFilter(ctx, state, pod, nodes)
}

func (e *exact) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if status := e.DynamicResources.Reserve(ctx, state, pod, node); !status.IsSuccess() {
		return status
	}
	written, err := state.Read(choiceKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	claims, percent := e.claimsOf(pod)
	for _, claim := range claims {
		pending := e.handle.SharedDRAManager().ResourceClaims().GetPendingAllocation(claim.UID)
		if pending == nil || pending.Devices.Results[0].Device != written.(choice)[node] {
			e.wrong.Add(1)
			return fwk.NewStatus(fwk.Unschedulable, "the allocation is not what was chosen")
		}
		e.books.reserve(claim.UID, node, written.(choice)[node], percent)
	}
	return nil
}

func (e *exact) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	claims, percent := e.claimsOf(pod)
	for _, claim := range claims {
		e.books.unreserve(claim.UID, percent)
	}
	e.DynamicResources.Unreserve(ctx, state, pod, node)
}

// startExact runs kube-scheduler with the profiles stock and exact in this process.
func (c *cluster) startExact(b *books) *exact {
	c.t.Helper()
	var made *exact
	factory := func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		v := &view{ResourceSliceLister: h.SharedDRAManager().ResourceSlices()}
		args := &config.DynamicResourcesArgs{FilterTimeout: &metav1.Duration{Duration: 10 * time.Second}, BindingTimeout: &metav1.Duration{Duration: time.Minute}}
		inner, err := dynamicresources.New(ctx, args, handle{h, v}, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, err
		}
		made = &exact{DynamicResources: inner.(*dynamicresources.DynamicResources), handle: h, view: v, books: b}
		return made, nil
	}
	text := `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- {schedulerName: plain}
- schedulerName: exact
  plugins:
    multiPoint: {enabled: [{name: ` + exactName + `}], disabled: [{name: DynamicResources}]}
`
	file := c.t.TempDir() + "/scheduler.yaml"
	c.must(os.WriteFile(file, []byte(text), 0o600))
	var profiles []config.KubeSchedulerProfile
	for _, name := range []string{file, "../../manifests/scheduler/config.yaml"} {
		cfg, err := options.LoadConfigFromFile(klog.Background(), name)
		c.must(err)
		profiles = append(profiles, cfg.Profiles...)
	}
	registry := frameworkruntime.Registry(plugins.All())
	registry[exactName] = factory
	rest := plane.Config(access.Admin)
	rest.QPS, rest.Burst = 5000, 5000
	client, err := kubernetes.NewForConfig(rest)
	c.must(err)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	c.t.Cleanup(broadcaster.Shutdown)
	informers := scheduler.NewInformerFactory(client, 0, nil)
	s, err := scheduler.New(c.ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithProfiles(profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithPercentageOfNodesToScore(new(int32(100))))
	c.must(err)
	informers.Start(c.ctx.Done())
	informers.WaitForCacheSync(c.ctx.Done())
	c.must(s.WaitForHandlersSync(c.ctx))
	go s.Run(c.ctx)
	return made
}

// fleet creates nodes with GPUs, with or without the taint packed, and returns the books of their devices.
func (c *cluster) fleet(prefix string, nodes, gpus int, fenced bool) *books {
	c.t.Helper()
	b := &books{devices: map[string][]string{}, reserved: map[[2]string]int64{}, of: map[types.UID][2]string{}}
	for n := range nodes {
		node := fmt.Sprintf("%s-%d", prefix, n)
		c.prepare(node)
		var offered []inventory.Slice
		for g := range gpus {
			offered = append(offered, slice(fmt.Sprint("GPU-", g), 132, 143771, share.Exclusive, share.MPS))
			b.devices[node] = append(b.devices[node], draplugin.DeviceName(offered[g].ID))
		}
		stored, err := c.publish(node, offered)
		c.must(err)
		for _, s := range stored {
			for i := range s.Spec.Devices {
				if fenced {
					s.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: packed, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
				}
			}
			_, err := c.ResourceV1().ResourceSlices().Update(c.ctx, s, metav1.UpdateOptions{})
			c.must(err)
		}
	}
	return b
}

// burst creates claims for a percentage of the SMs, then pods of a profile that use them, and returns the time until all are bound.
func (c *cluster) burst(what, profile string, pods int, percent func(int) int64, withClaims bool) time.Duration {
	c.t.Helper()
	name := func(i int) string { return fmt.Sprintf("%s-%d", what, i) }
	each := func(do func(int) error) {
		var all sync.WaitGroup
		for w := range 16 {
			all.Go(func() {
				for i := w; i < pods; i += 16 {
					if err := do(i); err != nil {
						c.t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	if withClaims {
		each(func(i int) error {
			_, err := c.ResourceV1().ResourceClaims("default").Create(c.ctx, &resourceapi.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: name(i)},
				Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
					Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, Capacity: &resourceapi.CapacityRequirements{
						Requests: map[resourceapi.QualifiedName]resource.Quantity{
							draplugin.CapacitySM: *resource.NewQuantity(percent(i), resource.DecimalSI), draplugin.CapacityMemory: resource.MustParse("1Gi"),
						},
					}},
				}}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	began := time.Now()
	each(func(i int) error {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{"burst": what}}, Spec: v1.PodSpec{
			SchedulerName: profile, Containers: []v1.Container{{Name: "main", Image: "i"}},
		}}
		if withClaims {
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new(name(i))}}
			pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
		} else if profile == "gshare" {
			pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{
				kube.ResourceSM: *resource.NewQuantity(percent(i), resource.DecimalSI), kube.ResourceMemory: resource.MustParse("1024"),
			}
			kube.Complete(pod)
		}
		_, err := c.CoreV1().Pods("default").Create(c.ctx, pod, metav1.CreateOptions{})
		return err
	})
	c.wait(func() string {
		list, err := c.CoreV1().Pods("default").List(c.ctx, metav1.ListOptions{LabelSelector: "burst=" + what})
		c.must(err)
		bound := 0
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		if bound < pods {
			return fmt.Sprintf("%d of %d are bound", bound, pods)
		}
		return ""
	})
	return time.Since(began)
}

// TestExact: for many concurrent claims of different sizes, the stock plugin allocates exactly the devices that the wrapper chose. A profile without the
// wrapper gets none of the tainted devices.
func TestExact(t *testing.T) {
	c := connect(t)
	b := c.fleet("fenced", 4, 8, true)
	e := c.startExact(b)
	sizes := []int64{24, 50, 10, 33, 60, 5}
	const pods = 48
	c.burst("mixed", "exact", pods, func(i int) int64 { return sizes[i%len(sizes)] }, true)
	claims, err := c.ResourceV1().ResourceClaims("default").List(c.ctx, metav1.ListOptions{})
	c.must(err)
	sums, last := map[string]int64{}, 0
	for _, claim := range claims.Items {
		r := claim.Status.Allocation.Devices.Results[0]
		sm := r.ConsumedCapacity[draplugin.CapacitySM]
		sums[r.Pool+"/"+r.Device] += sm.Value()
		if got := b.of[claim.UID]; got != [2]string{r.Pool, r.Device} {
			t.Errorf("%s is on %s/%s, and in the books on %v", claim.Name, r.Pool, r.Device, got)
		}
		if r.Device == "gpu-7" {
			last++
		}
	}
	for device, sum := range sums {
		if sum > 100 {
			t.Errorf("%s: %d %% of the SMs are allocated", device, sum)
		}
	}
	if last == 0 || len(claims.Items) != pods {
		t.Errorf("%d claims, %d on the last devices, which first fit reaches last", len(claims.Items), last)
	}
	t.Logf("%d claims on %d devices, %d allocations differed from the choice", pods, len(sums), e.wrong.Load())
	c.claim("default", "stranger", "fenced-0", map[resourceapi.QualifiedName]string{"sm": "5", "memory": "1Gi"})
	c.wait(func() string {
		if why := c.condition("default", "stranger"); !strings.Contains(why, "cannot allocate") {
			return "the stock scheduler says " + why
		}
		return ""
	})
}

// TestExactRate compares how many pods per second the profiles bind: pods without shares, with shares by resources, and with claims by the stock plugin
// and by the wrapped one.
func TestExactRate(t *testing.T) {
	c := connect(t)
	b := c.fleet("rate", 20, 8, false)
	c.startExact(b)
	const pods = 120
	quarter := func(int) int64 { return 24 }
	for n := range 20 {
		node, err := (trace.Node{Name: fmt.Sprint("packed-", n), Model: "G3", GPUs: 8, MilliCPU: 64000, MemoryMiB: 1 << 20}).Object()
		c.must(err)
		_, err = c.CoreV1().Nodes().Create(c.ctx, node, metav1.CreateOptions{})
		c.must(err)
		c.t.Cleanup(func() { _ = c.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}) })
	}
	for _, run := range []struct {
		what, profile string
		claims        bool
	}{
		{"warm", "plain", false}, {"none", "plain", false}, {"resources", "gshare", false}, {"stock", "plain", true}, {"wrapped", "exact", true},
		{"resources-again", "gshare", false}, {"stock-again", "plain", true}, {"wrapped-again", "exact", true},
	} {
		took := c.burst(run.what, run.profile, pods, quarter, run.claims)
		t.Logf("%s: %d pods in %v, %.0f/s", run.what, pods, took.Round(time.Millisecond), pods/took.Seconds())
	}
}
