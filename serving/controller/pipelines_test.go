package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/node/injection"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// instances maps profiles to the memory of their instances, in MiB, and their SMs.
var instances = map[string]struct {
	memory int64
	sms    int
}{"1g.10gb": {9728, 14}, "2g.20gb": {19968, 28}, "3g.40gb": {40192, 42}}

// instanceNode returns a node with MIG instances of these profiles, whose UUIDs are MIG-<node>-0 and so on.
func instanceNode(t *testing.T, name string, profiles ...string) *v1.Node {
	t.Helper()
	inventory := kube.Inventory{Rules: &kube.Rules{GammaPercent: 150, Window: metav1.Duration{Duration: kube.DefaultWindow}}}
	for i, p := range profiles {
		inventory.Slices = append(inventory.Slices, kube.Slice{
			ID: fmt.Sprintf("MIG-%s-%d", name, i), Device: "GPU-" + name, Model: "A100", Profile: p, SMs: instances[p].sms, MemoryMiB: instances[p].memory,
			Classes: []share.Isolation{share.Exclusive, share.MPS}, Healthy: true, MaxShares: 16,
		})
	}
	text, err := kube.EncodeInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}}}
}

// on returns a pod that holds a whole instance.
func on(t *testing.T, node, slice string) *v1.Pod {
	t.Helper()
	whole := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: share.MiB}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "has-" + strings.ToLower(slice), UID: types.UID("uid-" + slice)}}
	template := v1.PodTemplateSpec{Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main"}}}}
	AddShare(&template, &api.Share{SM: new(int64(100)), Memory: "1Mi"})
	p.Spec = template.Spec
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: p.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: slice, Class: share.Exclusive, Priority: share.BestEffort, Share: whole}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	setAnnotation(&p.ObjectMeta, kube.AnnotationPlacement, text)
	return p
}

// images returns a function of two stages: an instance with profile 1g.10gb can hold one of them, and one with 2g.20gb both.
func images(t *testing.T) *api.GPUFunction {
	return function(t, func(f *api.GPUFunction) {
		f.Name, f.Spec.Resources = "images", api.Resources{}
		times := func(one, two, three api.Duration) []api.StageTime {
			return []api.StageTime{{Profile: "1g.10gb", Time: one}, {Profile: "2g.20gb", Time: two}, {Profile: "3g.40gb", Time: three}}
		}
		f.Spec.Pipeline = &api.Pipeline{Transfer: "1ms", Stages: []api.Stage{
			{Name: "denoise", Memory: "6Gi", Times: times("10ms", "7ms", "5ms")},
			{Name: "classify", DependsOn: []string{"denoise"}, Memory: "8Gi", Times: times("10ms", "7ms", "5ms")},
		}}
		f.Spec.Template.Spec.Containers[0].LivenessProbe = &v1.Probe{}
	})
}

// kindsOf returns the slices that a pod's containers request, by container name.
func kindsOf(t *testing.T, p *v1.Pod) map[string]string {
	t.Helper()
	request, asks, err := kube.RequestOf(p)
	if err != nil || !asks {
		t.Fatal(asks, err)
	}
	kinds := map[string]string{}
	for _, c := range request.Containers {
		kinds[c.Name] = c.Slice
		if !c.Share.IsWhole() || c.Share.Memory != share.Bytes(instances[c.Slice].memory)*share.MiB {
			t.Errorf("container %s asks for %v of %s", c.Name, c.Share, c.Slice)
		}
	}
	return kinds
}

// TestCut: a replica of a function with a pipeline is cut into as few parts as the free instances of one node allow.
func TestCut(t *testing.T) {
	whole := func(profile string) map[string]string { return map[string]string{"server": profile} }
	two := map[string]string{"server": "1g.10gb", "gshare-stage-1": "1g.10gb"}
	for name, test := range map[string]struct {
		objects func(t *testing.T) []client.Object
		want    map[string]string
	}{
		"one instance is enough": {func(t *testing.T) []client.Object {
			return []client.Object{instanceNode(t, "a", "3g.40gb", "2g.20gb", "1g.10gb")}
		}, whole("2g.20gb")},
		"small ones are free": {func(t *testing.T) []client.Object {
			return []client.Object{instanceNode(t, "a", "3g.40gb", "1g.10gb", "1g.10gb"), on(t, "a", "MIG-a-0")}
		}, two},
		"small ones of two nodes": {func(t *testing.T) []client.Object {
			return []client.Object{instanceNode(t, "a", "1g.10gb"), instanceNode(t, "b", "1g.10gb"), instanceNode(t, "c", "3g.40gb")}
		}, whole("3g.40gb")},
		"the node where it takes the least": {func(t *testing.T) []client.Object {
			return []client.Object{instanceNode(t, "a", "3g.40gb"), instanceNode(t, "b", "2g.20gb")}
		}, whole("2g.20gb")},
		"none is free, it waits": {func(t *testing.T) []client.Object {
			return []client.Object{instanceNode(t, "a", "3g.40gb"), on(t, "a", "MIG-a-0")}
		}, whole("3g.40gb")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, test.objects(t)...)
				c.run(false)
				c.pods.Create(instanceOfFunction(images(t), 1))
				c.event()
				if diff := cmp.Diff(test.want, kindsOf(t, c.replica())); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// replica returns the only pod of a function.
func (c *cluster) replica() *v1.Pod {
	c.Helper()
	synctest.Wait()
	all := slices.DeleteFunc(c.all(), func(p v1.Pod) bool { return p.Namespace == "other" })
	if len(all) != 1 {
		c.Fatalf("%d pods, want 1: %v", len(all), all)
	}
	return &all[0]
}

// TestCutPod: the parts are sidecars with the server's image. The server finds them by their names, and they share a folder in
// memory.
func TestCutPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, instanceNode(t, "a", "1g.10gb", "1g.10gb"))
		c.run(false)
		c.pods.Create(instanceOfFunction(images(t), 1))
		c.event()
		p := c.replica()
		for _, name := range []string{"server", "gshare-stage-1"} {
			if refusal := injection.Check(p, name, "/var/lib/gshare-node"); refusal != nil {
				t.Errorf("the agent refuses the container: %v", refusal)
			}
		}
		if got := api.AtOnce(p); got != 2 { // each part takes 10 ms
			t.Errorf("it gets %d requests at once", got)
		}
		server, stage := p.Spec.Containers[0], p.Spec.InitContainers[0]
		if stage.Image != server.Image || *stage.RestartPolicy != v1.ContainerRestartPolicyAlways || stage.ReadinessProbe != nil || stage.LivenessProbe != nil || stage.Ports != nil {
			t.Errorf("the stage is %+v", stage)
		}
		variables := func(c v1.Container) map[string]string {
			all := map[string]string{}
			for _, v := range c.Env {
				all[v.Name] = v.Value
			}
			delete(all, "PORT")
			return all
		}
		if diff := cmp.Diff(map[string]string{"GSHARE_ATTACH": "/run/gshare-pipeline", "GSHARE_STAGE": "gshare-stage-1"}, variables(stage)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]string{"GSHARE_ATTACH": "/run/gshare-pipeline", "GSHARE_STAGE": "server", "GSHARE_STAGES": `{"version":1,"function":"images",` +
			`"stages":[[{"nodes":["denoise"],"slice":"server"}],[{"nodes":["classify"],"slice":"gshare-stage-1"}]]}`}, variables(server)); diff != "" {
			t.Error(diff)
		}
		if len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].EmptyDir.Medium != v1.StorageMediumMemory ||
			!cmp.Equal(server.VolumeMounts, stage.VolumeMounts) || server.VolumeMounts[0].MountPath != "/run/gshare-pipeline" {
			t.Errorf("volumes %v, mounts %v, %v", p.Spec.Volumes, server.VolumeMounts, stage.VolumeMounts)
		}
	})
}

func TestNoInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode(t, "a"))
		c.run(false)
		c.pods.Create(instanceOfFunction(images(t), 1))
		if e := c.event(); e.Kind != fleet.Starting || !strings.Contains(e.Message, "no node has a MIG instance") {
			t.Errorf("got %+v", e)
		}
		if all := c.all(); len(all) > 0 {
			t.Errorf("there are pods: %v", all)
		}
	})
}

// TestCorrectedPipeline: a waiting replica is cut according to the function's current pipeline.
func TestCorrectedPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right := images(t)
		wrong := right.DeepCopy()
		wrong.Spec.Pipeline.Stages[1].Times = []api.StageTime{{Profile: "7g.80gb", Time: "1ms"}}
		c := newCluster(t, instanceNode(t, "a", "1g.10gb", "1g.10gb"), wrong.DeepCopy())
		c.run(false)
		c.pods.Create(instanceOfFunction(wrong, 1))
		if e := c.event(); e.Kind != fleet.Starting || len(c.all()) > 0 {
			t.Fatalf("got %+v", e)
		}
		c.ignoreEvents()
		stored := &api.GPUFunction{}
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(wrong), stored); err != nil {
			t.Fatal(err)
		}
		stored.Spec.Pipeline = right.Spec.Pipeline
		if err := c.client.Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // a retry follows every 30 s at least
		if kinds := kindsOf(t, c.replica()); len(kinds) != 2 {
			t.Errorf("it is cut as %v", kinds)
		}
	})
}
