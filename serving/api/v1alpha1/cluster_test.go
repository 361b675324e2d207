package v1alpha1_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gpuMemory = 40_960 * share.MiB

// sixLines is a function as a user of a cluster writes it.
func sixLines() *api.GPUFunction {
	return &api.GPUFunction{
		ObjectMeta: metav1.ObjectMeta{Name: "resnet50", Namespace: "ml"},
		Spec: api.GPUFunctionSpec{
			SLO:      api.SLO{Latency: "69ms"},
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "server", Image: "resnet50"}}}},
		},
	}
}

func TestCompleteForCluster(t *testing.T) {
	t.Run("without a share or a rate", func(t *testing.T) {
		written := sixLines()
		f, err := written.CompleteForCluster(gpuMemory)
		if err != nil {
			t.Fatal(err)
		}
		s := f.Share()
		if s.SMRequest != share.Whole || s.QuotaRequest != share.Whole || s.Memory != gpuMemory || !written.Unprofiled() {
			t.Errorf("share %v, want a whole GPU", s)
		}
		if *f.Spec.Scaling.MaxReplicas != 1 || f.Spec.Scaling.MinReplicas != 0 || f.Grace() == 0 {
			t.Errorf("scaling %v, want one replica at most", f.Spec.Scaling)
		}
		if written.Spec.Resources.Share != nil || written.Spec.Template.Spec.TerminationGracePeriodSeconds != nil {
			t.Error("the object itself has changed")
		}
	})
	t.Run("with both", func(t *testing.T) {
		written := sixLines()
		written.Spec.Resources.Share = &api.Share{SM: new(int64(24)), Quota: new(int64(40)), Memory: "1525Mi"}
		written.Spec.Scaling.RequestsPerSecond = 32
		f, err := written.CompleteForCluster(0)
		if err != nil {
			t.Fatal(err)
		}
		if s := f.Share(); s.SMRequest != 240 || s.QuotaRequest != 400 || s.Memory != 1525*share.MiB || *f.Spec.Scaling.MaxReplicas != 10 {
			t.Errorf("%v, at most %d replicas", s, *f.Spec.Scaling.MaxReplicas)
		}
	})
	t.Run("with a pipeline", func(t *testing.T) {
		written := sixLines()
		written.Spec.Pipeline = &api.Pipeline{Stages: []api.Stage{{Name: "a", Memory: "1500M"}, {Name: "b", Memory: "2Gi"}}}
		written.Spec.Scaling.RequestsPerSecond = 32
		f, err := written.CompleteForCluster(0)
		if err != nil {
			t.Fatal(err)
		}
		if s := f.Share(); !s.IsWhole() || s.Memory != (1431+2048)*share.MiB || written.Unprofiled() || *f.Spec.Scaling.MaxReplicas != 10 {
			t.Errorf("%v, want a whole instance with the memory of all stages; at most %d replicas", s, *f.Spec.Scaling.MaxReplicas)
		}
	})
	pipeline := func(change func(s *api.GPUFunctionSpec)) func(f *api.GPUFunction) {
		return func(f *api.GPUFunction) {
			f.Spec.Pipeline = &api.Pipeline{Stages: []api.Stage{{Name: "a", Memory: "1Gi"}}}
			change(&f.Spec)
		}
	}
	for name, test := range map[string]struct {
		change func(f *api.GPUFunction)
		memory share.Bytes
		want   string
	}{
		"pipeline with a profile":   {pipeline(func(s *api.GPUFunctionSpec) { s.ProfileRef = &api.ProfileReference{Name: "p"} }), 0, "spec.pipeline: want no profileRef"},
		"pipeline that is parked":   {pipeline(func(s *api.GPUFunctionSpec) { s.Scaling.KeepWarm = "1m" }), 0, "spec.pipeline: want no scaling.keepWarm"},
		"pipeline with a long name": {pipeline(func(s *api.GPUFunctionSpec) { s.Template.Spec.Containers[0].Name = strings.Repeat("a", 58) }), 0, "spec.pipeline: want a name of at most 57"},
		"pipeline with a name of a stage": {pipeline(func(s *api.GPUFunctionSpec) {
			s.Template.Spec.InitContainers = []v1.Container{{Name: "gshare-stage-1"}}
		}), 0, "want no container gshare-stage-1"},
		"no GPU":         {func(*api.GPUFunction) {}, 0, "no node with a GPU"},
		"no objective":   {func(f *api.GPUFunction) { f.Spec.SLO.Latency = "" }, gpuMemory, "spec.slo.latency"},
		"tokens of HTTP": {func(f *api.GPUFunction) { f.Spec.Protocol, f.Spec.SLO.TimePerToken = api.HTTP, "50ms" }, gpuMemory, "spec.slo.timePerToken"},
		"no container":   {func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers = nil }, gpuMemory, "containers"},
		"endless grace":  {func(f *api.GPUFunction) { f.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1 << 40)) }, gpuMemory, "Grace"},
		"long name":      {func(f *api.GPUFunction) { f.Name = strings.Repeat("a", 51) }, gpuMemory, "metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sixLines()
			test.change(f)
			if _, err := f.CompleteForCluster(test.memory); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one about %s", err, test.want)
			}
		})
	}
}

// TestProfiledLimit: a replica gets the SMs that its profile has measured to be of use where others leave them idle, unless its template or its function says
// otherwise, or the limit is none.
func TestProfiledLimit(t *testing.T) {
	annotate := func(name, value string) func(*api.GPUFunction) {
		return func(f *api.GPUFunction) { f.Spec.Template.Annotations = map[string]string{name: value} }
	}
	for name, test := range map[string]struct {
		change func(*api.GPUFunction)
		want   share.PerMille
	}{
		"measured":            {func(*api.GPUFunction) {}, 250},
		"less than half more": {func(f *api.GPUFunction) { f.Status.Profiled.SMLimit = 29 }, 290},
		"half more":           {func(f *api.GPUFunction) { f.Status.Profiled.SMLimit = 30 }, 300},
		"more than half more": {func(f *api.GPUFunction) { f.Status.Profiled.SMLimit = 31 }, 300},
		"odd share":           {func(f *api.GPUFunction) { f.Status.Profiled.SM, f.Status.Profiled.SMLimit = 5, 100 }, 70},
		"as the share":        {func(f *api.GPUFunction) { f.Status.Profiled.SMLimit = 20 }, 200},
		"not measured":        {func(f *api.GPUFunction) { f.Status.Profiled.SMLimit = 0 }, 200},
		"more than there are": {func(f *api.GPUFunction) { f.Status.Profiled.SMLimit = 101 }, 200},
		"part of the time":    {func(f *api.GPUFunction) { f.Status.Profiled.Quota = 50 }, 200},
		"different shares":    {func(f *api.GPUFunction) { f.Spec.Scaling.Shares = api.MixedShares }, 200},
		"own share":           {func(f *api.GPUFunction) { f.Spec.Resources.Share = &api.Share{SM: new(int64(20)), Memory: "1Gi"} }, 200},
		"own limit":           {annotate(share.FieldSMLimit, "30"), 200},
		"class mps":           {annotate(share.FieldIsolation, "mps"), 200},
		"another annotation":  {annotate(share.FieldModel, "H200"), 250},
	} {
		t.Run(name, func(t *testing.T) {
			f := sixLines()
			f.Spec.ProfileRef = &api.ProfileReference{Name: "p"}
			f.Status.Profiled = &api.ProfileRecommendation{SM: 20, SMLimit: 25, Quota: 100, Memory: "1Gi", MaxBatch: 1, RequestsPerSecond: 100}
			test.change(f)
			complete, err := f.CompleteForCluster(gpuMemory)
			if err != nil {
				t.Fatal(err)
			}
			if s := complete.Share(); int64(s.SMRequest) != 10*f.Status.Profiled.SM || s.SMLimit != test.want {
				t.Errorf("%+v, want a limit of %v", s, test.want)
			}
		})
	}
}

// TestVariants: a smaller share that a profile has measured is one of those that replicas may have, and answers no more for its SM-time than the function's
// own: whoever says that the own answers less than was measured does not believe the others either.
func TestVariants(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *api.GPUFunction)
		want   map[string]float64 // SM x quota, and the rate
	}{
		"measured":      {func(*api.GPUFunction) {}, map[string]float64{"20x100": 100, "10x100": 40, "5x40": 8}},
		"single":        {func(f *api.GPUFunction) { f.Spec.Scaling.Shares = api.SingleShare }, map[string]float64{"20x100": 100}},
		"lower rate":    {func(f *api.GPUFunction) { f.Spec.Scaling.RequestsPerSecond = 50 }, map[string]float64{"20x100": 50, "10x100": 24.75, "5x40": 4.95}},
		"higher rate":   {func(f *api.GPUFunction) { f.Spec.Scaling.RequestsPerSecond = 200 }, map[string]float64{"20x100": 200, "10x100": 40, "5x40": 8}},
		"more for it":   {func(f *api.GPUFunction) { f.Status.Profiled.Smaller[0].RequestsPerSecond = 70 }, map[string]float64{"20x100": 100, "10x100": 49.5, "5x40": 8}},
		"no larger one": {func(f *api.GPUFunction) { f.Spec.Resources.Share = &api.Share{SM: new(int64(10)), Memory: "1Gi"} }, map[string]float64{"10x100": 100, "5x40": 8}},
		"no share":      {func(f *api.GPUFunction) { f.Status.Profiled.Smaller[0].SM = 0 }, map[string]float64{"20x100": 100, "5x40": 8}},
		"too little":    {func(f *api.GPUFunction) { f.Status.Profiled.Smaller[0].RequestsPerSecond = 0 }, map[string]float64{"20x100": 100, "5x40": 8}},
	} {
		t.Run(name, func(t *testing.T) {
			f := sixLines()
			f.Spec.Scaling.Shares, f.Spec.ProfileRef = api.MixedShares, &api.ProfileReference{Name: "p"}
			f.Status.Profiled = &api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "1Gi", MaxBatch: 1, RequestsPerSecond: 100,
				Smaller: []api.MeasuredShare{{SM: 10, Quota: 100, RequestsPerSecond: 40}, {SM: 5, Quota: 40, RequestsPerSecond: 8}}}
			test.change(f)
			complete, err := f.CompleteForCluster(gpuMemory)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, v := range complete.Variants() {
				s := v.Share()
				got[fmt.Sprintf("%dx%d", s.SMRequest/10, s.QuotaRequest/10)] = math.Round(1000*v.Spec.Scaling.RequestsPerSecond) / 1000
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestOnSilentNode: the node controller changes the condition Ready alone, what a kubelet says of a pod that is not Ready has another reason.
func TestOnSilentNode(t *testing.T) {
	const gate = "example.com/registered"
	condition := func(c v1.PodConditionType, s v1.ConditionStatus) v1.PodCondition {
		return v1.PodCondition{Type: c, Status: s}
	}
	ready, notReady := condition(v1.PodReady, v1.ConditionTrue), condition(v1.PodReady, v1.ConditionFalse)
	containers, noContainers := condition(v1.ContainersReady, v1.ConditionTrue), condition(v1.ContainersReady, v1.ConditionFalse)
	for name, test := range map[string]struct {
		conditions []v1.PodCondition
		gates      []v1.PodReadinessGate
		want       bool
	}{
		"ready":                    {conditions: []v1.PodCondition{ready, containers}},
		"silent node":              {conditions: []v1.PodCondition{notReady, containers}, want: true},
		"probe fails":              {conditions: []v1.PodCondition{notReady, noContainers}},
		"no word on containers":    {conditions: []v1.PodCondition{notReady}},
		"no condition":             {},
		"containers only":          {conditions: []v1.PodCondition{containers}},
		"gate is closed":           {conditions: []v1.PodCondition{notReady, containers, condition(gate, v1.ConditionFalse)}, gates: []v1.PodReadinessGate{{ConditionType: gate}}},
		"gate is not there":        {conditions: []v1.PodCondition{notReady, containers}, gates: []v1.PodReadinessGate{{ConditionType: gate}}},
		"silent node, gate passed": {conditions: []v1.PodCondition{notReady, containers, condition(gate, v1.ConditionTrue)}, gates: []v1.PodReadinessGate{{ConditionType: gate}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{ReadinessGates: test.gates}, Status: v1.PodStatus{Conditions: test.conditions}}
			if got := api.OnSilentNode(p); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	ready := []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	for name, test := range map[string]struct {
		pod     v1.Pod
		address string
		ready   bool
	}{
		"no IP":      {v1.Pod{Status: v1.PodStatus{Conditions: ready}}, "", false},
		"not ready":  {v1.Pod{Status: v1.PodStatus{PodIP: "10.0.0.1"}}, "10.0.0.1:8080", false},
		"ready":      {v1.Pod{Status: v1.PodStatus{PodIP: "10.0.0.1", Conditions: ready}}, "10.0.0.1:8080", true},
		"IPv6":       {v1.Pod{Status: v1.PodStatus{PodIP: "fd00::1", Conditions: ready}}, "[fd00::1]:8080", true},
		"other port": {v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 1}, {Name: "serving", ContainerPort: 9000}}}}}, Status: v1.PodStatus{PodIP: "10.0.0.1", Conditions: ready}}, "10.0.0.1:9000", true},
	} {
		t.Run(name, func(t *testing.T) {
			if address, ready := api.Address(&test.pod); address != test.address || ready != test.ready {
				t.Errorf("%q, %t; want %q, %t", address, ready, test.address, test.ready)
			}
		})
	}
}
