package controller

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// function returns a complete function with a share of 24 % of the SMs, a quota of 40 to 80 %, and slightly more than 1.5 GiB.
func function(t *testing.T, change func(f *api.GPUFunction)) *api.GPUFunction {
	t.Helper()
	f := &api.GPUFunction{
		ObjectMeta: metav1.ObjectMeta{Name: "resnet50", Namespace: "ml", UID: "uid-1"},
		Spec: api.GPUFunctionSpec{
			SLO:       api.SLO{Latency: "69ms"},
			Resources: api.Resources{Share: &api.Share{SM: new(int64(24)), Quota: new(int64(40)), QuotaLimit: new(int64(80)), Memory: "1537M"}},
			Scaling:   api.Scaling{RequestsPerSecond: 32},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "vision"}},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "server", Image: "resnet50"}}},
			},
		},
	}
	if change != nil {
		change(f)
	}
	complete, err := f.CompleteForCluster(0)
	if err != nil {
		t.Fatal(err)
	}
	return complete
}

func TestFunctionPod(t *testing.T) {
	f := function(t, nil)
	fp := fastPodOf(f)
	p := functionPod(fp, fp.Name+"-3", 3)
	request, asks, err := kube.RequestOf(p)
	if err != nil || !asks {
		t.Fatalf("asks for a share: %t, %v", asks, err)
	}
	want := f.Share()
	if got := request.Containers[0].Share; got.SMRequest != want.SMRequest || got.QuotaRequest != want.QuotaRequest || got.QuotaLimit != want.QuotaLimit || got.Memory != want.Memory {
		t.Errorf("asks for %v, want %v", got, want)
	}
	if want.Memory != 1466*share.MiB { // 1537 MB are 1465.8 MiB
		t.Errorf("memory %v", want.Memory)
	}
	if p.Spec.SchedulerName != kube.SchedulerName || p.Namespace != "ml" || p.Labels["team"] != "vision" || p.Labels[api.LabelFaSTPod] != fp.Name {
		t.Errorf("pod %s of scheduler %s, labels %v", p.Name, p.Spec.SchedulerName, p.Labels)
	}
	if !metav1.IsControlledBy(fp, f) || p.OwnerReferences[0].Kind != "FaSTPod" || p.OwnerReferences[0].Name != fp.Name {
		t.Errorf("owners %v, %v", fp.OwnerReferences, p.OwnerReferences)
	}
	c := &p.Spec.Containers[0]
	if c.Env[0].Name != "PORT" || c.Env[0].Value != "8080" || c.ReadinessProbe.TCPSocket == nil || c.ReadinessProbe.TCPSocket.Port.IntVal != 8080 {
		t.Errorf("%v, readiness %v", c.Env, c.ReadinessProbe)
	}
	function, instance, err := instanceOf(p)
	if function != "resnet50" || instance != 3 || err != nil {
		t.Errorf("is %s %d, %v", function, instance, err)
	}
	if fp.Spec.Template.Labels[api.LabelInstance] != "" || f.Spec.Template.Labels[api.LabelFunction] != "" {
		t.Error("the template has changed")
	}
}

// TestSeveralGPUs: a pod asks for the sums over its GPUs, and the number of GPUs is part of what makes replicas outdated.
func TestSeveralGPUs(t *testing.T) {
	whole := func(gpus int64) *api.FaSTPod {
		return fastPodOf(function(t, func(f *api.GPUFunction) {
			f.Spec.Resources.Share = &api.Share{SM: new(int64(100)), Memory: "1537M", GPUs: gpus}
		}))
	}
	got := functionPod(whole(2), "resnet50-1", 1).Spec.Containers[0].Resources.Limits
	for name, want := range map[v1.ResourceName]int64{kube.ResourceVGPU: 2, kube.ResourceSM: 200, kube.ResourceQuota: 100, kube.ResourceMemory: 2 * 1466, kube.ResourceSMTime: 20_000} {
		if q := got[name]; q.Value() != want {
			t.Errorf("%s: %v, want %d", name, &q, want)
		}
	}
	request, asks, err := kube.RequestOf(functionPod(whole(2), "resnet50-1", 1))
	if err != nil || !asks || request.ValidateDevices() != nil || request.Containers[0].VGPUs != 2 || request.Containers[0].Share.Memory != 1466*share.MiB {
		t.Errorf("%+v, %v: no node takes it", request, err)
	}
	if one := whole(1).Name; whole(2).Name == one || whole(0).Name != one {
		t.Error("the name depends on the notation of one GPU, or not on the number of GPUs")
	}
}

func TestTemplateOfUser(t *testing.T) {
	f := function(t, func(f *api.GPUFunction) {
		f.Spec.Protocol = api.OIP
		c := &f.Spec.Template.Spec.Containers[0]
		c.Ports = []v1.ContainerPort{{Name: "serving", ContainerPort: 9000}}
		c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: {}}
	})
	c := fastPodOf(f).Spec.Template.Spec.Containers[0]
	if len(c.Ports) != 1 || c.Env[0].Value != "9000" || c.ReadinessProbe.HTTPGet.Path != "/v2/health/ready" || c.ReadinessProbe.HTTPGet.Port.IntVal != 9000 {
		t.Errorf("ports %v, %v, readiness %v", c.Ports, c.Env, c.ReadinessProbe.HTTPGet)
	}
	if _, has := c.Resources.Limits[v1.ResourceCPU]; !has || len(f.Spec.Template.Spec.Containers[0].Resources.Limits) != 1 {
		t.Errorf("limits %v; those of the object are %v", c.Resources.Limits, f.Spec.Template.Spec.Containers[0].Resources.Limits)
	}
	own := function(t, func(f *api.GPUFunction) {
		c := &f.Spec.Template.Spec.Containers[0]
		c.Env = []v1.EnvVar{{Name: "PORT", Value: "8080"}}
		c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	})
	if c := fastPodOf(own).Spec.Template.Spec.Containers[0]; len(c.Env) != 1 || c.ReadinessProbe.Exec == nil {
		t.Errorf("%v, readiness %v", c.Env, c.ReadinessProbe)
	}
}

func TestNameOfFastPod(t *testing.T) {
	name := fastPodOf(function(t, nil)).Name
	if again := fastPodOf(function(t, nil)).Name; again != name {
		t.Errorf("%s and %s of the same function", name, again)
	}
	for what, change := range map[string]func(f *api.GPUFunction){
		"share": func(f *api.GPUFunction) { f.Spec.Resources.Share.Quota = new(int64(41)) },
		"image": func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "resnet50:2" },
	} {
		if fastPodOf(function(t, change)).Name == name {
			t.Errorf("the name is the same with another %s", what)
		}
	}
	other := fastPodOf(function(t, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "70ms"; f.Spec.Scaling.RequestsPerSecond = 30 })).Name
	if other != name {
		t.Error("another objective makes other pods")
	}
	notation := func(memory api.Quantity, limit, cpu, scratch, devices string) func(*api.GPUFunction) {
		return func(f *api.GPUFunction) {
			f.Spec.Resources.Share.Memory = memory
			pod := &f.Spec.Template.Spec
			pod.Containers[0].Resources.Limits = v1.ResourceList{
				v1.ResourceMemory: resource.MustParse(limit), v1.ResourceCPU: resource.MustParse(cpu), "example.com/nic": resource.MustParse(devices),
			}
			size := resource.MustParse(scratch)
			pod.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}}
		}
	}
	one := fastPodOf(function(t, notation("1Gi", "2Gi", "1500m", "1G", "2048"))).Name
	if same := fastPodOf(function(t, notation("1024Mi", "2147483648", "1.5", "1000M", "2Ki"))).Name; same != one {
		t.Error("the same quantities in other words make other pods")
	}
	if other := fastPodOf(function(t, notation("1Gi", "2G", "1500m", "1G", "2048"))).Name; other == one {
		t.Error("the name is the same with another limit")
	}
	if len(name) > 56 {
		t.Errorf("%s is too long", name)
	}
}

func TestInstanceOf(t *testing.T) {
	for _, labels := range []map[string]string{
		nil, {api.LabelFunction: "a"}, {api.LabelInstance: "1"}, {api.LabelFunction: "a", api.LabelInstance: "0"},
		{api.LabelFunction: "a", api.LabelInstance: "x"}, {api.LabelFunction: "a", api.LabelInstance: "99999999999999999999"},
	} {
		if _, _, err := instanceOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}}); err == nil {
			t.Errorf("%v are those of an instance", labels)
		}
	}
}

// TestResidencyOfTemplate: a template cannot set the residency of its pods or have them drained, which the API server lets only gshare do.
func TestResidencyOfTemplate(t *testing.T) {
	f := function(t, func(f *api.GPUFunction) {
		f.Spec.Template.Annotations = map[string]string{
			kube.AnnotationResidency:        `{"v":1,"residency":{"seq":1,"level":"Shared"}}`,
			kube.AnnotationResidencyReached: `{"v":1,"residency":{"seq":1,"level":"Shared"}}`,
			api.AnnotationMovesFrom:         "1",
			api.AnnotationAtOnce:            "9",
			api.AnnotationDrain:             "2026-01-01T00:00:00Z",
			"team":                          "vision",
		}
	})
	fp := fastPodOf(f)
	for name, p := range map[string]*v1.Pod{"of a function": functionPod(fp, "x", 1), "without a function": standalonePod(fp, 1)} {
		w, r, err := kube.ResidencyOf(p)
		if w != residency.Fixed || r != (residency.Reached{}) || movesFrom(p) != 0 || api.AtOnce(p) != 1 || p.Annotations[api.AnnotationDrain] != "" || err != nil || p.Annotations["team"] != "vision" {
			t.Errorf("%s: %+v, %+v, %v, annotations %v", name, w, r, err, p.Annotations)
		}
	}
}
