package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clients "k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/node/enforcement"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// installation is a cluster with one node on which all is well.
type installation struct {
	server    string
	node      *v1.Node
	inventory kube.Inventory
	agent     *v1.Pod
	scheduler *v1.Pod
	lease     *coordination.Lease
	config    *v1.ConfigMap
	daemons   *apps.DaemonSet
	without   string // policy that is not installed
	mutating  string // version of mutating admission policies that the API server serves
	forbidden string // resource that may not be read
	pods      []*v1.Pod
	leases    []*coordination.Lease
	offered   *resourceapi.ResourceSlice // to claims
	serves    bool                       // the API server has the kinds of serving
	served    []runtime.Object           // its definitions and functions
}

func ownPod(name, app, node, image string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: image}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
}

// closes makes the node's slice one that takes no new pods.
func closes(reason kube.Reason) func(*installation) {
	return func(i *installation) { i.inventory.Slices[0].Healthy, i.inventory.Slices[0].Reason = false, reason }
}

func newInstallation() *installation {
	holder, renewed := "gshare-scheduler-1", metav1.NewMicroTime(now.Add(-2*time.Second))
	meta := metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "gshare-scheduler"}
	i := &installation{
		server: "v1.37.1",
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{labelGPUs: "true"}}, Status: v1.NodeStatus{
			NodeInfo:   v1.NodeSystemInfo{KubeletVersion: "v1.37.1", ContainerRuntimeVersion: "containerd://2.4.2"},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady"}},
		}},
		inventory: kube.Inventory{Rules: &kube.Rules{GammaPercent: 150, Window: metav1.Duration{Duration: 50 * time.Millisecond}}, Slices: []kube.Slice{{ID: "GPU-1", Device: "GPU-1", Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS}}}},
		agent:     ownPod("gshare-node-x", "gshare-node", "n1", "gshare-node:v1.0.0"),
		scheduler: ownPod("gshare-scheduler-1", "gshare-scheduler", "n0", "gshare-scheduler:v1.0.0"),
		lease:     &coordination.Lease{ObjectMeta: meta, Spec: coordination.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}},
		config:    &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config.yaml": string(manifests.SchedulerConfig)}},
		daemons:   &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "gshare-node"}},
		mutating:  "v1",
	}
	i.daemons.Spec.Template = v1.PodTemplateSpec{ObjectMeta: i.agent.ObjectMeta, Spec: *i.agent.Spec.DeepCopy()}
	i.node.Status.Allocatable = kube.NodeResources(i.inventory)
	return i
}

func (i *installation) examine(t *testing.T) []Finding {
	t.Helper()
	client := i.client(t)
	scheme := runtime.NewScheme()
	lists := map[schema.GroupVersionResource]string{definitionsResource: "CustomResourceDefinitionList", functionsResource: "GPUFunctionList"}
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, lists, i.served...)
	objects.PrependReactor("*", i.forbidden, func(core.Action) (bool, runtime.Object, error) {
		return i.forbidden != "", nil, apierrors.NewForbidden(schema.GroupResource{Resource: i.forbidden}, "", nil)
	})
	if i.serves {
		discovery := client.Discovery().(*fake.FakeDiscovery)
		discovery.Resources = append(discovery.Resources, &metav1.APIResourceList{GroupVersion: api.APIVersion, APIResources: []metav1.APIResource{{Name: "gpufunctions"}}})
	}
	return Examine(t.Context(), client, objects, now)
}

func (i *installation) client(t *testing.T) *clients.Clientset {
	t.Helper()
	if len(i.inventory.Slices) > 0 {
		text, err := kube.EncodeInventory(i.inventory)
		if err != nil {
			t.Fatal(err)
		}
		i.node.Annotations = map[string]string{kube.AnnotationInventory: text}
	}
	objects := []runtime.Object{i.node}
	for _, o := range []runtime.Object{i.agent, i.scheduler, i.lease, i.config, i.daemons} {
		if !isNil(o) {
			objects = append(objects, o)
		}
	}
	for _, pod := range i.pods {
		objects = append(objects, pod)
	}
	if i.offered != nil {
		objects = append(objects, i.offered)
	}
	for _, lease := range i.leases {
		objects = append(objects, lease)
	}
	client := clients.NewClientset(append(objects, i.policies(t)...)...)
	discovery := client.Discovery().(*fake.FakeDiscovery)
	discovery.FakedServerVersion = &version.Info{GitVersion: i.server}
	discovery.Resources = i.admissionKinds()
	client.PrependReactor("*", i.forbidden, func(core.Action) (bool, runtime.Object, error) {
		return i.forbidden != "", nil, apierrors.NewForbidden(schema.GroupResource{Resource: i.forbidden}, "", nil)
	})
	return client
}

func isNil(o runtime.Object) bool {
	switch o := o.(type) {
	case *v1.Pod:
		return o == nil
	case *coordination.Lease:
		return o == nil
	case *v1.ConfigMap:
		return o == nil
	case *apps.DaemonSet:
		return o == nil
	}
	return false
}

func TestAllIsWell(t *testing.T) {
	for _, f := range newInstallation().examine(t) {
		if f.Status != OK || f.Fix != "" {
			t.Errorf("%+v", f)
		}
	}
}

// Each thing that is missing gives a finding of its own, with a fix; TestAllIsWell is the other half of every case.
func TestFindings(t *testing.T) {
	held := func(i *installation, placement string) {
		pod := ownPod("user", "", "n1", "x")
		pod.Namespace = "ml"
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{kube.ResourceSM: resource.MustParse("10"), kube.ResourceMemory: resource.MustParse("10")}
		kube.Complete(pod)
		pod.Annotations = map[string]string{kube.AnnotationPlacement: placement}
		if placement == "" {
			pod.Annotations = nil
		}
		i.pods = append(i.pods, pod)
	}
	for name, c := range map[string]struct {
		breaks           func(*installation)
		component, check string
		status           Status
		message, fix     string
	}{
		"old API server": {func(i *installation) { i.server = "v1.34.2"; i.node.Status.NodeInfo.KubeletVersion = "v1.37.0" }, apiServer, "version", Failed, "v1.34.2", "1.35"},
		"newer kubelet":  {func(i *installation) { i.server = "v1.36.0" }, kubelet, "skew", Failed, "v1.37.1", "newer"},
		"old kubelet":    {func(i *installation) { i.node.Status.NodeInfo.KubeletVersion = "v1.34.4" }, kubelet, "version", Failed, "v1.34.4", "1.35"},
		"kubelet without PodsAPI": {func(i *installation) {
			i.node.Status.NodeInfo.KubeletVersion = "v1.36.3"
			i.agent.Status.Conditions[0].Status = v1.ConditionFalse
		}, kubelet, "version", Failed, "no PodsAPI", "manifests/older"},
		"kubelet of 1.35":        {func(i *installation) { i.node.Status.NodeInfo.KubeletVersion = "v1.35.8" }, kubelet, "version", OK, "v1.35.8", ""},
		"defaults by v1beta1":    {func(i *installation) { i.mutating = "v1beta1" }, admission, mutating, OK, "gshare-defaults (v1beta1)", ""},
		"gate of v1beta1":        {func(i *installation) { i.mutating = "v1beta1" }, admission, "gate", Unknown, "policies do nothing", "/metrics"},
		"no defaults by v1beta1": {func(i *installation) { i.mutating, i.without = "v1beta1", "gshare-defaults" }, admission, mutating, Failed, "missing: gshare-defaults (v1beta1)", "manifests/older/v1beta1"},
		"no defaults served":     {func(i *installation) { i.mutating = "" }, admission, mutating, Warning, "gshare-share refuses pods without them", "write them in pods"},
		"defaults not installed": {func(i *installation) { i.without = "gshare-defaults" }, admission, mutating, Failed, "missing: gshare-defaults", "apply your overlay, gshare.yaml or chart again"},
		"kubelet of 1.36":        {func(i *installation) { i.node.Status.NodeInfo.KubeletVersion = "v1.36.3" }, kubelet, "version", OK, "v1.36.3", ""},
		"node is not ready":      {func(i *installation) { i.node.Status.Conditions[0].Status = v1.ConditionFalse }, kubelet, "ready", Failed, "KubeletReady", "describe node n1"},
		"policy is missing":      {func(i *installation) { i.without = "gshare-share" }, admission, "ValidatingAdmissionPolicy", Failed, "gshare-share", "chart again"},
		"slo policy is left out": {func(i *installation) { i.without = "gshare-slo" }, admission, "ValidatingAdmissionPolicy", Warning, "gshare-slo", "unless this is intended"},
		"no policy may be read":  {func(i *installation) { i.forbidden = "validatingadmissionpolicies" }, admission, "ValidatingAdmissionPolicy", Unknown, "forbidden", "permission to get"},
		"no scheduler":           {func(i *installation) { i.scheduler = nil }, scheduler, "running", Failed, "0 of 0", "kubectl"},
		"scheduler is not ready": {func(i *installation) { i.scheduler.Status.Conditions[0].Status = v1.ConditionFalse }, scheduler, "running", Failed, "0 of 1", "logs"},
		"lease is old":           {func(i *installation) { *i.lease.Spec.RenewTime = metav1.NewMicroTime(now.Add(-time.Minute)) }, scheduler, "leader", Failed, "1m0s", "log"},
		"no lease":               {func(i *installation) { i.lease = nil }, scheduler, "leader", Failed, "no lease", "log"},
		"lease may not be read":  {func(i *installation) { i.forbidden = "leases" }, scheduler, "leader", Unknown, "forbidden", "permission to get leases"},
		"no profile": {func(i *installation) {
			i.config.Data["config.yaml"] = strings.ReplaceAll(i.config.Data["config.yaml"], "schedulerName: gshare\n", "schedulerName: other\n")
		}, scheduler, "profile", Failed, "other (SlotPacking)", "profile gshare"},
		"no configuration":       {func(i *installation) { i.config = nil }, scheduler, "profile", Unknown, "defaults", "configmaps"},
		"no daemon set":          {func(i *installation) { i.daemons = nil }, agent, "daemonset", Failed, "no DaemonSet", "chart again"},
		"no agent":               {func(i *installation) { i.agent = nil }, agent, "running", Failed, "no node agent", labelGPUs},
		"inventory of no agent":  {func(i *installation) { i.agent = nil }, gpus, "owner", Warning, "without", "out of date"},
		"agent is not ready":     {func(i *installation) { i.agent.Status.Conditions[0].Status = v1.ConditionFalse }, agent, "running", Failed, "gshare-node-x", "kubectl logs"},
		"agent of another image": {func(i *installation) { i.agent.Spec.Containers[0].Image = "gshare-node:v0.9.0" }, agent, "current", Warning, "v0.9.0", "v1.0.0"},
		"no node is marked": {func(i *installation) {
			i.node.Labels, i.agent, i.inventory = nil, nil, kube.Inventory{}
		}, agent, "nodes", Failed, "0 nodes", "kubectl label"},
		"no inventory":        {func(i *installation) { i.inventory = kube.Inventory{} }, gpus, "inventory", Failed, "none", "log"},
		"rules not published": {func(i *installation) { i.inventory.Rules = nil }, gpus, "rules", Warning, "not published, the defaults are assumed: gammaPercent 150, tenancy user", "upgrade the node agent"},
		"old containerd":      {func(i *installation) { i.node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.6.8" }, containers, "cdi", Failed, "1.6.8", "2.0"},
		"CDI may be off":      {func(i *installation) { i.node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.20" }, containers, "cdi", Warning, "1.7.20", "enable_cdi"},
		"other runtime":       {func(i *installation) { i.node.Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.37.0" }, containers, "cdi", Warning, "cri-o", "CDI"},
		"slice takes no pods": {func(i *installation) { i.inventory.Slices[0].Healthy = false }, gpus, "health", Warning, "1 of 1 slice", "no reason given"},
		"slice is cordoned":   {closes(kube.ReasonCordoned), gpus, "health", Warning, "GPU-1: cordoned", "an administrator"},
		"slice has failed":    {closes(kube.ReasonFault), gpus, "health", Warning, "GPU-1: fault", "the device has failed"},
		"no MPS":              {func(i *installation) { i.inventory.Slices[0].Classes = []share.Isolation{share.Exclusive} }, gpus, "mps", Warning, "GPU-1", "nvidia-cuda-mps-control"},
		"no device plugin":    {func(i *installation) { delete(i.node.Status.Allocatable, kube.ResourceVGPU) }, gpus, "capacity", Failed, "gshare/vgpu 0", "device-plugins"},
		"memory not patched":  {func(i *installation) { delete(i.node.Status.Allocatable, kube.ResourceMemory) }, gpus, "capacity", Failed, "gshare/mem 0", "nodes/status"},
		"more than there is":  {func(i *installation) { i.node.Status.Allocatable[kube.ResourceMemory] = resource.MustParse("81920") }, gpus, "capacity", Warning, "81920", "drain the node"},
		"a pod nobody placed": {func(i *installation) { held(i, "") }, pods, "placements", Failed, "ml/user", "delete"},
		"uncounted memory": {func(i *installation) {
			held(i, "")
			i.pods[len(i.pods)-1].Annotations = map[string]string{kube.AnnotationEnforcementStatus: `{"v":1,"containers":[{"name":"main","since":"2030-01-01T00:00:00Z","missing":["` +
				enforcement.MemoryCounts(watchdog.MemoryCounts{Driver: 3000 * share.MiB, Ledger: 1000 * share.MiB, Granted: 2000 * share.MiB}) + `"]}]}`}
		}, pods, "memory", Warning, "ml/user: the driver counts 3000 MiB of its processes, the hook 1000 MiB", "does not count"},
		"a malformed placement":  {func(i *installation) { held(i, "{") }, pods, "placements", Failed, "ml/user", "delete"},
		"pods may not be listed": {func(i *installation) { i.forbidden = "nodes" }, agent, "nodes", Unknown, "verb list", "permission to list"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation()
			c.breaks(i)
			found := i.examine(t)
			at := slices.IndexFunc(found, func(f Finding) bool {
				return f.Component == c.component && f.Check == c.check && f.Status == c.status && strings.Contains(f.Message, c.message) && strings.Contains(f.Fix, c.fix)
			})
			if at < 0 {
				t.Errorf("no such finding among %+v", found)
			}
			if Broken(found) != (c.status == Failed) && name != "inventory of no agent" && name != "uncounted memory" { // of a pod nobody placed
				t.Errorf("broken: %v", Broken(found))
			}
		})
	}
}

func TestVersions(t *testing.T) {
	i := newInstallation()
	for own, skewed := range map[string]bool{"v1.0.3": false, "v1.1.0": false, "v1.2.0": true, "v2.0.0": true, "(devel)": false} {
		t.Run(own, func(t *testing.T) {
			for _, v := range Versions(t.Context(), i.client(t), own)[2:] {
				if v.Version != "v1.0.0" || v.Count != 1 || v.Skewed != skewed || !v.Image {
					t.Errorf("%+v", v)
				}
			}
		})
	}
	// The annotation wins over the image. Each of these two versions is supported with the client, but not with the other.
	i.agent.Annotations = map[string]string{"gshare.dev/version": "v0.9.0"}
	i.scheduler.Annotations = map[string]string{"gshare.dev/version": "v0.11.0"}
	for n, want := range []Version{
		{Component: "gshare", Version: "v0.10.0", Count: 1}, {Component: "kube-apiserver", Version: "v1.37.1", Count: 1},
		{Component: "gshare-scheduler", Version: "v0.11.0", Count: 1, Skewed: true}, {Component: "gshare-node", Version: "v0.9.0", Count: 1, Skewed: true},
	} {
		t.Run(want.Component, func(t *testing.T) {
			if got := Versions(t.Context(), i.client(t), "v0.10.0")[n]; got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	serving := newInstallation()
	serving.pods = []*v1.Pod{ownPod("c", "gshare-controller", "", "gshare-controller:v0.9.0"), ownPod("g", "gshare-gateway", "", "gshare-gateway:v1.1.0"), ownPod("h", "gshare-gateway", "", "gshare-gateway:v1.1.0")}
	for _, want := range []Version{
		{Component: "gshare-controller", Version: "v0.9.0", Count: 1, Image: true, Skewed: true}, {Component: "gshare-gateway", Version: "v1.1.0", Count: 2, Image: true, Skewed: true},
	} {
		if found := Versions(t.Context(), serving.client(t), "v1.0.0"); !slices.Contains(found, want) {
			t.Errorf("%+v is not in %+v", want, found)
		}
	}
	if Skewed("v0.0.0-20260101000000-0123456789ab", "v0.9.0") {
		t.Error("a commit without a tag is skewed")
	}
	i.scheduler, i.forbidden = nil, "pods"
	for _, v := range Versions(t.Context(), i.client(t), "v1")[2:] {
		if v.Error == "" || v.Version != "" {
			t.Errorf("%+v", v)
		}
	}
	for image, want := range map[string]string{"a:v1": "v1", "host:5000/a": "latest", "host:5000/a:dev@sha256:0": "dev"} {
		t.Run(image, func(t *testing.T) {
			if got := Tag(image); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestGPUsOfClaims: a node whose GPUs are all for resource claims has none in its inventory, and is well; one that offers none to them is not.
func TestGPUsOfClaims(t *testing.T) {
	for name, test := range map[string]struct {
		driver, node string
		want         Status
	}{
		"its own":        {"gshare.dev", "n1", OK},
		"another node's": {"gshare.dev", "n2", Failed},
		"another driver": {"gpu.nvidia.com", "n1", Failed},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation()
			i.inventory.Slices = nil
			i.node.Annotations = map[string]string{kube.AnnotationInventory: `{"v":1,"slices":[]}`}
			i.node.Status.Allocatable = nil
			i.offered = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
				Driver: test.driver, NodeName: &test.node, Devices: []resourceapi.Device{{Name: "gpu-1"}},
			}}
			found := i.examine(t)
			n := slices.IndexFunc(found, func(f Finding) bool { return f.Component == gpus && f.Check == "inventory" })
			if n < 0 || found[n].Status != test.want {
				t.Errorf("got %+v, want an inventory that is %s", found, test.want)
			}
		})
	}
}

// TestMissing checks that what agents report about MPS daemons is taken from the enforcement statuses of pods, and nothing else of these.
func TestMissing(t *testing.T) {
	pod := ownPod("user", "", "n1", "x")
	if got := missing(pod, enforcement.MPSDaemon); len(got) != 0 {
		t.Errorf("without a status: got %q", got)
	}
	pod.Annotations = map[string]string{kube.AnnotationEnforcementStatus: `{"v":1,"containers":[{"name":"main","since":"2030-01-01T00:00:00Z",` +
		`"missing":["time","the MPS daemon serves the processes of one user at a time"]}]}`}
	if got := missing(pod, enforcement.MPSDaemon); !slices.Equal(got, []string{"the MPS daemon serves the processes of one user at a time"}) {
		t.Errorf("got %q", got)
	}
}
