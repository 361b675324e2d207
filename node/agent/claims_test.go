package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/gpu/nvml"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// claimed configures a node whose GPU-1 is offered to resource claims.
func claimed(o *Options) {
	o.Config.Tenancy, o.Config.Kubernetes.ResourceClaims = "mixed", []string{"GPU-1"}
}

// podWithClaim returns a pod whose containers use a claim that was made for it from a template, and the claim.
func podWithClaim(uid string, containers ...string) (*v1.Pod, *resourceapi.ResourceClaim) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns-" + uid, Name: "pod-" + uid}}
	pod.Spec.NodeName = "n"
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("quarter")}}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: name, Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}},
		})
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID("claim-" + uid), Namespace: pod.Namespace, Name: pod.Name + "-gpu-abcde",
		Annotations: map[string]string{podClaimAnnotation: "gpu"}, OwnerReferences: []metav1.OwnerReference{{UID: pod.UID}},
	}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	return pod, claim
}

func partOf(slice string, sm share.PerMille, memory share.Bytes) []draplugin.Part {
	return []draplugin.Part{{Request: "gpu", Device: draplugin.DeviceName(slice), ShareID: "s", SM: sm, Memory: memory}}
}

// prepare adds a pod with a claim and prepares it.
func (r *fixture) prepare(uid, slice string, sm share.PerMille, memory share.Bytes) (claim *resourceapi.ResourceClaim, cdi string, err error) {
	pod, claim := podWithClaim(uid, "main")
	r.kubelet.AddPod(pod)
	cdi, err = r.PrepareClaim(r.ctx, claim, partOf(slice, sm, memory))
	return claim, cdi, err
}

func (r *fixture) specOf(cdi string) string {
	text, err := os.ReadFile(filepath.Join(r.dir, "cdi", "gshare.dev-grant-"+strings.TrimPrefix(cdi, "gshare.dev/grant=")+".json"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestClaims: until it is given back, a claim has a share like a pod that gshare-scheduler placed. The sums on a GPU stay within bounds, and a new
// agent finds all claims again.
func TestClaims(t *testing.T) {
	r := newFixture(t, claimed)
	a, device, err := r.prepare("a", "GPU-1", 240, 16<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"CUDA_VISIBLE_DEVICES=GPU-1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=24", "libgshare"} {
		if spec := r.specOf(device); !strings.Contains(spec, part) {
			t.Errorf("the CDI file has no %q: %s", part, spec)
		}
	}
	if _, again, err := r.prepare("a", "GPU-1", 240, 16<<30); err != nil || again != device {
		t.Errorf("prepared again: %s, %v; want %s", again, err, device)
	}
	pod, large := podWithClaim("b", "main")
	r.kubelet.AddPod(pod)
	for limit := time.Second; ; limit *= 2 { // it waits for the end of the first claim
		short, cancel := context.WithTimeout(r.ctx, limit)
		_, err := r.PrepareClaim(short, large, partOf("GPU-1", 770, 1<<30))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && r.ctx.Err() == nil { // too short for one attempt on a busy machine
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "not possible beside") {
			t.Errorf("24 %% and 77 %% of the SMs: %v", err)
		}
		break
	}
	b, _, err := r.prepare("b", "GPU-1", 760, 64<<30)
	if err != nil {
		t.Error("a claim of another namespace:", err)
	}
	r.stop()
	r.start()
	if got := r.grants(); !slices.Equal(got, []string{"pod-a", "pod-b"}) {
		t.Errorf("after a restart: %v", got)
	}
	if _, again, err := r.prepare("a", "GPU-1", 240, 16<<30); err != nil || again != device {
		t.Errorf("prepared again after a restart: %s, %v; want %s", again, err, device)
	}
	for range 2 {
		for _, claim := range []*resourceapi.ResourceClaim{a, b} {
			if err := r.UnprepareClaim(r.ctx, claim.UID); err != nil {
				t.Error(err)
			}
		}
	}
	if grants, specs, dirs := r.grants(), r.left("cdi"), r.left("grants"); len(grants) != 0 || specs != 0 || dirs != 0 {
		t.Errorf("left: grants %v, %d CDI files, %d directories", grants, specs, dirs)
	}
	if _, _, err := r.prepare("c", "GPU-1", 1000, 80<<30); err != nil {
		t.Error("a claim of all that is free again:", err)
	}
}

// TestClaimEnds: the share of an ended pod is free even before the kubelet gives the claim back.
func TestClaimEnds(t *testing.T) {
	r := newFixture(t, claimed)
	claim, _, err := r.prepare("a", "GPU-1", 240, 16<<30)
	if err != nil {
		t.Fatal(err)
	}
	r.kubelet.RemovePod("a")
	r.wait("the release", func() bool { return len(r.grants()) == 0 })
	if err := r.UnprepareClaim(r.ctx, claim.UID); err != nil {
		t.Error(err)
	}
}

// TestClaimStatus: the status of a claim says what limits its share and what is not enforced, as the annotation of a pod does.
func TestClaimStatus(t *testing.T) {
	r := newFixture(t, claimed)
	claim, _, err := r.prepare("a", "GPU-1", 240, 16<<30)
	if err != nil {
		t.Fatal(err)
	}
	var devices []resourceapi.AllocatedDeviceStatus
	r.wait("the status", func() bool {
		devices = r.cluster.claimDevices(claim.Namespace + "/" + claim.Name)
		return len(devices) == 1
	})
	d := devices[0]
	if d.Driver != draplugin.Driver || d.Pool != "n" || d.Device != "gpu-1" || *d.ShareID != "s" {
		t.Errorf("the device is %+v", d)
	}
	for i, want := range []struct{ kind, status, message string }{{"Ready", "True", ""}, {"Enforced", "False", "the devices are simulated"}} {
		if c := d.Conditions[i]; c.Type != want.kind || string(c.Status) != want.status || !strings.Contains(c.Message, want.message) || c.LastTransitionTime.IsZero() {
			t.Errorf("condition %+v, want %+v", c, want)
		}
	}
	if !strings.Contains(string(d.Data.Raw), "MPS") {
		t.Errorf("the enforcement status is %s", d.Data.Raw)
	}
}

// TestClaimOfNextPod: a pod that uses a claim after another pod gets what is currently allocated to the claim, no matter when the other pod's share
// is released.
func TestClaimOfNextPod(t *testing.T) {
	r := newFixture(t, claimed)
	claim, _, err := r.prepare("a", "GPU-1", 240, 16<<30)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := podWithClaim("b", "main")
	c := grant.Claim{Pod: next, Container: "main", ResourceClaim: grant.ResourceClaim{UID: claim.UID, ShareIDs: []types.UID{"t"}}}
	parts := partOf("GPU-1", 120, 8<<30)
	parts[0].ShareID = "t"
	if got, err := r.allocated(c, parts); err != nil || len(got) != 1 || got[0].Share.SMLimit != 120 {
		t.Errorf("got %+v, %v; want 12 %% of the SMs", got, err)
	}
}

// TestClaimsKeepNoCapacity: pods with claims take nothing from the capacity that the node advertises to other pods, so that capacity shrinks by the
// GPUs offered to claims.
func TestClaimsKeepNoCapacity(t *testing.T) {
	all := []string{"GPU-1"}
	r := newFixture(t, func(o *Options) { o.Config.Tenancy, o.Config.Kubernetes.ResourceClaims = "mixed", all })
	if _, _, err := r.prepare("a", "GPU-1", 240, 16<<30); err != nil {
		t.Fatal(err)
	}
	r.wait("the memory of GPU-0", func() bool { return r.cluster.memory() == 81920 })
	r.stop()
	all = []string{inventory.AllDevices}
	r.start()
	r.wait("the change", func() bool { return len(r.devices.currentInventory().OfClaims()) == 2 })
	r.wait("the end of what the node advertises", func() bool { return r.cluster.memory() == 0 })
}

// TestServesClaims: an agent whose configuration no longer offers GPUs to claims still takes back claims of an earlier configuration, including
// refused ones, which have no grant.
func TestServesClaims(t *testing.T) {
	for name, test := range map[string]struct{ client, configured, before, want bool }{
		"never":             {client: true},
		"configured":        {client: true, configured: true, want: true},
		"before":            {client: true, before: true, want: true},
		"without a cluster": {configured: true, before: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{}
			o.Config.Kubernetes.Plugins = t.TempDir()
			if test.client {
				o.Client = fake.NewClientset()
			}
			if test.configured {
				o.Config.Kubernetes.ResourceClaims = []string{"GPU-1"}
			}
			if test.before {
				if err := os.Mkdir(filepath.Join(o.Config.Kubernetes.Plugins, draplugin.Driver), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			if got := (&Agent{Options: &o}).servesClaims(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestOneInterface: pods of the device plugin get nothing of a GPU offered to claims, and claims get nothing of the other GPUs.
func TestOneInterface(t *testing.T) {
	r := newFixture(t, claimed)
	if n := len(r.devices.currentInventory().Published().Slices); n != 1 {
		t.Errorf("%d slices are published for gshare-scheduler, want 1", n)
	}
	if _, _, err := r.prepare("a", "GPU-0", 240, 1<<30); err == nil || !strings.Contains(err.Error(), "not offered") {
		t.Errorf("a claim of GPU-0: %v", err)
	}
	cdi := r.pod("b", "GPU-1", 24, 100)
	if _, err := r.create("b", cdi); err == nil || !r.cluster.hasEvent("pod-b GPUOtherInterface") {
		t.Errorf("a placed pod on GPU-1: %v", err)
	}
	cdi = r.pod("c", "GPU-0", 24, 100)
	r.mustCreate("c", cdi, "GPU-0")
}

// TestInterfaceChanges: a GPU that is no longer offered to claims keeps its existing claims, and is the device plugin's once they are given back.
func TestInterfaceChanges(t *testing.T) {
	on := true
	r := newFixture(t, func(o *Options) {
		if on {
			claimed(o)
		}
	})
	claim, device, err := r.prepare("a", "GPU-1", 240, 16<<30)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	on = false
	r.start()
	offered := r.OfferedToClaims().Slices
	if len(offered) != 1 || offered[0].Healthy {
		t.Errorf("offered to claims: %+v; want GPU-1, closed for new ones", offered)
	}
	if _, again, err := r.prepare("a", "GPU-1", 240, 16<<30); err != nil || again != device {
		t.Errorf("prepared again: %s, %v", again, err)
	}
	if err := r.UnprepareClaim(r.ctx, claim.UID); err != nil {
		t.Fatal(err)
	}
	r.wait("the change", func() bool {
		return len(r.OfferedToClaims().Slices) == 0 && len(r.devices.currentInventory().Published().Slices) == 2
	})
}

// TestClaimsWhileDriverHangs: while the driver does not respond, a new agent offers to claims what the previous agent did, and prepares them.
// Without the previous agent's records, as after a reboot, it publishes no pool until the driver responds: an empty pool would replace that of the
// previous agent.
func TestClaimsWhileDriverHangs(t *testing.T) {
	t.Parallel()
	for name, rebooted := range map[string]bool{"restarted": false, "rebooted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &hangingNVML{}
			r := newFixture(t, claimed, func(o *Options) { o.Source = nvml.New(h.library()) })
			before := r.OfferedToClaims()
			if len(before.Slices) != 1 || !before.Known || before.Checked.IsZero() {
				t.Fatalf("offered: %+v", before)
			}
			r.wait("the record", func() bool { _, err := os.Stat(filepath.Join(r.dir, claimsName)); return err == nil })
			hang := make(chan struct{})
			h.hang.Store(&hang)
			r.wait("a call that hangs", func() bool { return h.waits.Load() > 0 })
			r.stop()
			if rebooted {
				if err := os.Remove(filepath.Join(r.dir, claimsName)); err != nil {
					t.Fatal(err)
				}
			}
			r.start()
			now := r.OfferedToClaims()
			if !now.Checked.IsZero() || now.Known == rebooted {
				t.Errorf("offered while the driver hangs: %+v", now)
			}
			if rebooted {
				r.stop()
				r.start() // it does not treat what the previous agent did not know as absent
				now = r.OfferedToClaims()
				if now.Known {
					t.Errorf("offered by the agent after it: %+v", now)
				}
			} else {
				if diff := cmp.Diff(before.Slices, now.Slices); diff != "" {
					t.Errorf("offered before and after (-before +after):\n%s", diff)
				}
				if _, _, err := r.prepare("a", "GPU-1", 240, 16<<30); err != nil {
					t.Error(err)
				}
			}
			h.hang.Store(nil)
			close(hang)
			r.wait("the answer", func() bool { o := r.OfferedToClaims(); return o.Known && !o.Checked.IsZero() && len(o.Slices) == 1 })
			<-now.Changed
		})
	}
}

// TestClaimRefused: claims for which no share can be granted are refused, with a message for the user.
func TestClaimRefused(t *testing.T) {
	r := newFixture(t, claimed)
	for name, test := range map[string]struct {
		change func(*v1.Pod, *resourceapi.ResourceClaim)
		want   string
	}{
		"two pods": {func(_ *v1.Pod, c *resourceapi.ResourceClaim) {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", UID: "x"})
		}, "ResourceClaimTemplate"},
		"no pod":              {func(_ *v1.Pod, c *resourceapi.ResourceClaim) { c.Status.ReservedFor = nil }, "reserved for 0 users"},
		"a group":             {func(_ *v1.Pod, c *resourceapi.ResourceClaim) { c.Status.ReservedFor[0].Resource = "podgroups" }, "of one pod"},
		"another node's pod":  {func(_ *v1.Pod, c *resourceapi.ResourceClaim) { c.Status.ReservedFor[0].UID = "x" }, "does not run on this node"},
		"another pod's claim": {func(_ *v1.Pod, c *resourceapi.ResourceClaim) { c.OwnerReferences[0].UID = "x" }, "does not list the claim"},
		"another namespace":   {func(_ *v1.Pod, c *resourceapi.ResourceClaim) { c.Namespace = "x" }, "does not list the claim"},
		"another name": {func(p *v1.Pod, _ *resourceapi.ResourceClaim) {
			p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("other")}
		}, "does not list the claim"},
		"two containers": {func(p *v1.Pod, _ *resourceapi.ResourceClaim) {
			p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
		}, "a claim of its own"},
		"no container": {func(p *v1.Pod, _ *resourceapi.ResourceClaim) { p.Spec.Containers[0].Resources.Claims = nil }, "of one container"},
		"init container": {func(p *v1.Pod, _ *resourceapi.ResourceClaim) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []v1.Container{{Name: "main"}}
		}, "init container"},
		"host's processes": {func(p *v1.Pod, _ *resourceapi.ResourceClaim) { p.Spec.HostPID = true }, "hostPID"},
		"host's memory":    {func(p *v1.Pod, _ *resourceapi.ResourceClaim) { p.Spec.HostIPC = true }, "hostIPC"},
		"privileged beside it": {func(p *v1.Pod, _ *resourceapi.ResourceClaim) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "side", SecurityContext: &v1.SecurityContext{Privileged: new(true)}})
		}, "privileged"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, claim := podWithClaim("p", "main")
			test.change(pod, claim)
			r.kubelet.AddPod(pod)
			defer r.kubelet.RemovePod("p")
			if _, err := r.PrepareClaim(r.ctx, claim, partOf("GPU-1", 240, 1<<30)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error with %q", err, test.want)
			}
			if left := r.grants(); len(left) != 0 {
				t.Errorf("grants %v", left)
			}
		})
	}
	t.Run("named claim", func(t *testing.T) {
		pod, claim := podWithClaim("q", "main")
		claim.OwnerReferences, claim.Annotations = nil, nil
		pod.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim.Name}
		r.kubelet.AddPod(pod)
		if _, err := r.PrepareClaim(r.ctx, claim, partOf("GPU-1", 240, 1<<30)); err != nil {
			t.Error(err)
		}
		second := claim.DeepCopy()
		second.UID, second.Name = "second", "second"
		pod = pod.DeepCopy()
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "more", ResourceClaimName: &second.Name})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: "more"})
		r.kubelet.AddPod(pod)
		if _, err := r.PrepareClaim(r.ctx, second, partOf("GPU-1", 240, 1<<30)); err == nil || !strings.Contains(err.Error(), "in one claim") {
			t.Errorf("a second claim of the container: %v", err)
		}
	})
}
