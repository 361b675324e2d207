package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/hookfile"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/test/fake/hook"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// cluster is a Cluster that records what is written to it.
type cluster struct {
	mu        sync.Mutex // guards the fields below
	inventory string
	has       v1.ResourceList
	enforced  map[types.UID]string
	events    []string
	evicted   []string
	reached   map[types.UID]string // the latest residency written
	conflicts int                  // number of writes of the residency that fail before one succeeds
	away      bool
	claims    map[string][]resourceapi.AllocatedDeviceStatus // by namespace and name
}

var errAway = errors.New("the API server is away")

func (c *cluster) fail() error {
	if c.away {
		return errAway
	}
	return nil
}

func (c *cluster) Published(context.Context) (kube.Inventory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inventory == "" {
		return kube.Inventory{}, c.fail()
	}
	return kube.DecodeInventory(c.inventory)
}

func (c *cluster) Publish(_ context.Context, inventory string, has, keep v1.ResourceList) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fail(); err != nil {
		return err
	}
	c.inventory = inventory
	node := &v1.Node{Status: v1.NodeStatus{Capacity: c.has, Allocatable: c.has}}
	patch := kube.CapacityPatch(node, has, keep)
	if patch == nil {
		return nil
	}
	if err := json.Unmarshal(patch, node); err != nil {
		return err
	}
	c.has = node.Status.Capacity
	return nil
}

// memory returns the gshare/mem of the node.
func (c *cluster) memory() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.has[kube.ResourceMemory]
	return q.Value()
}

func (c *cluster) WatchNode(context.Context, func()) {}

func (c *cluster) WriteEnforcement(_ context.Context, _ types.NamespacedName, uid types.UID, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enforced[uid] = text
	return c.fail()
}

func (c *cluster) WriteClaimStatus(_ context.Context, claim types.NamespacedName, _ types.UID, devices []resourceapi.AllocatedDeviceStatus) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims == nil {
		c.claims = map[string][]resourceapi.AllocatedDeviceStatus{}
	}
	c.claims[claim.String()] = devices
	return c.fail()
}

// claimDevices returns the latest status written for a claim's devices.
func (c *cluster) claimDevices(claim string) []resourceapi.AllocatedDeviceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[claim]
}

func (c *cluster) WriteResidency(_ context.Context, pod *v1.Pod, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conflicts > 0 {
		c.conflicts--
		return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, nil)
	}
	if err := c.fail(); err != nil {
		return err
	}
	if c.reached == nil {
		c.reached = map[types.UID]string{}
	}
	c.reached[pod.UID] = text
	return nil
}

func (c *cluster) Evict(_ context.Context, pod types.NamespacedName, _ types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicted = append(c.evicted, pod.Name)
	return nil
}

func (c *cluster) Warn(pod *v1.Pod, reason, text string) {
	c.event(pod.Name + " " + reason + " " + text)
}
func (c *cluster) Notify(pod *v1.Pod, reason, text string) {
	c.event(pod.Name + " " + reason + " " + text)
}

func (c *cluster) event(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, text)
}

func (c *cluster) hasEvent(part string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.events, func(e string) bool { return strings.Contains(e, part) })
}

// told returns the number of events.
func (c *cluster) told() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
}

// drop removes the events with a prefix after the first n.
func (c *cluster) drop(n int, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, len(c.events))
	c.events = append(c.events[:n], slices.DeleteFunc(c.events[n:], func(e string) bool { return strings.HasPrefix(e, prefix) })...)
}

// fixture is an agent with a fake kubelet and a fake API server.
type fixture struct {
	*Agent
	t       *testing.T
	ctx     context.Context
	kubelet *fakekubelet.Kubelet
	cluster *cluster
	dir     string
	log     *strings.Builder // of all agents of the test; printed if it fails
	stop    func()
	options func(*Options)
}

const devices = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920}
`

func newFixture(t *testing.T, options ...func(*Options)) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "ga") // t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &fixture{t: t, ctx: ctx, dir: dir, kubelet: fakekubelet.New(dir, string(kube.ResourceVGPU)), cluster: &cluster{enforced: map[types.UID]string{}}, log: &strings.Builder{}}
	t.Cleanup(func() { // after the agent has ended
		if t.Failed() {
			t.Log(r.log)
		}
	})
	r.options = func(o *Options) {
		for _, change := range options {
			change(o)
		}
	}
	r.write("devices.yaml", devices)
	hook.Write(t, filepath.Join(r.dir, hookfile.Name))
	if err := r.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kubelet.Kill)
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// write replaces a file of the node at once: the agent may be reading it.
func (r *fixture) write(name, text string) {
	r.t.Helper()
	if err := atomicfile.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// start runs a new agent on the node of the last one, and blocks until it is ready.
func (r *fixture) start() {
	r.t.Helper()
	pods, err := kubelet.DialPods(r.kubelet.Pods())
	if err != nil {
		r.t.Fatal(err)
	}
	records, err := kubelet.DialRecords(r.kubelet.PodResources(), pods)
	if err != nil {
		r.t.Fatal(err)
	}
	c := config.Configuration{Directory: r.dir, ContextReserveMiB: new(int64(0)), Kubernetes: config.Kubernetes{
		NodeName: "n", DevicePlugins: r.kubelet.DevicePlugins(), CDI: filepath.Join(r.dir, "cdi"), Hook: filepath.Join(r.dir, "libgshare.so"),
		HealthPeriod: metav1.Duration{Duration: 100 * time.Millisecond},
	}}.WithDefaults()
	o := Options{
		Config: c, Source: gpu.Simulated{File: filepath.Join(r.dir, "devices.yaml")}, MPS: mps.Daemons{Simulated: true},
		Pods: pods, Records: records, Cluster: r.cluster, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	r.options(&o)
	if r.Agent, err = New(o); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
		records.Close()
		pods.Close()
		r.stop = func() {}
	}
	r.wait("registration", func() bool { return r.ready() == nil })
	if err := r.kubelet.WaitDevices(r.ctx, len(deviceid.All(r.shares()))); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fixture) shares() []int {
	return r.devices.currentInventory().DeviceIDs()
}

// wait blocks until a condition holds; what names it.
func (r *fixture) wait(what string, done func() bool) {
	r.t.Helper()
	for !done() {
		select {
		case <-r.ctx.Done():
			r.t.Fatalf("timeout waiting for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// pod adds a pod that is placed on a slice, and admits it. It returns the CDI device of its container main.
func (r *fixture) pod(uid, slice string, sm, quota int64) string {
	r.t.Helper()
	r.kubelet.AddPod(placed(uid, slice, sm, quota))
	return r.admitted(uid)
}

func (r *fixture) admitted(uid string) string {
	r.t.Helper()
	cdi, err := r.kubelet.Admit(r.ctx, types.UID(uid), "main", 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return cdi
}

// placed returns a pod with the scheduler's placement on a slice; sm and quota are in percent.
func placed(uid, slice string, sm, quota int64) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: "pod-" + uid}}
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
		kube.ResourceSM: *resource.NewQuantity(sm, resource.DecimalSI), kube.ResourceQuota: *resource.NewQuantity(quota, resource.DecimalSI),
		kube.ResourceMemory: resource.MustParse("1024"),
	}}}}
	kube.Complete(pod)
	s := share.Share{
		SMRequest: share.PerMille(sm * 10), SMLimit: share.PerMille(sm * 10), QuotaRequest: share.PerMille(quota * 10),
		QuotaLimit: share.PerMille(quota * 10), Memory: 1 << 30,
	}
	class := share.MPS
	if s.IsWhole() {
		class = share.Exclusive
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: "n", UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: slice, Class: class, Priority: share.BestEffort, Share: s}},
	}}})
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{kube.AnnotationPlacement: text}
	return pod
}

// create creates a container as the kubelet and the runtime do: it calls PreStart, and returns the file of the CDI device.
func (r *fixture) create(uid, cdi string) (spec string, err error) {
	r.t.Helper()
	return r.createContainer(uid, "main", cdi)
}

func (r *fixture) createContainer(uid, container, cdi string) (spec string, err error) {
	r.t.Helper()
	if err := r.kubelet.Create(r.ctx, types.UID(uid), container); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "cdi", "gshare.dev-grant-"+strings.TrimPrefix(cdi, "gshare.dev/grant=")+".json"))
	return string(text), err
}

// createSoon is create for a container that must start. If the agent gave up because something took too long, as it may on a busy machine, it repeats
// PreStart, as the kubelet does, and drops the error's event. An error that comes within a second has another reason.
func (r *fixture) createSoon(uid, cdi string) (spec string, err error) {
	r.t.Helper()
	return r.createContainerSoon(uid, "main", cdi)
}

func (r *fixture) createContainerSoon(uid, container, cdi string) (spec string, err error) {
	r.t.Helper()
	for {
		before, began := r.cluster.told(), time.Now()
		if spec, err = r.createContainer(uid, container, cdi); err == nil || time.Since(began) < time.Second {
			return spec, err
		}
		r.t.Logf("repeats the start of pod %s: %v", uid, err)
		r.cluster.drop(before, "pod-"+uid+" ")
		select {
		case <-r.ctx.Done():
			return "", err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *fixture) mustCreate(uid, cdi, slice string) {
	r.t.Helper()
	spec, err := r.createSoon(uid, cdi)
	if err != nil || !strings.Contains(spec, "CUDA_VISIBLE_DEVICES="+slice+`"`) {
		r.t.Fatalf("pod %s: %v; its CDI file is %s", uid, err, spec)
	}
}

// grants returns the names of the pods with a grant.
func (r *fixture) grants() (names []string) {
	for _, g := range r.granter.grants.all() {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names
}

// left returns the number of files in a directory of the node.
func (r *fixture) left(dir string) int {
	entries, err := os.ReadDir(filepath.Join(r.dir, dir))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return len(entries)
}
