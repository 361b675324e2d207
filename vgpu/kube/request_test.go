package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/share"
)

var defaultTerms = share.Terms{Priority: share.BestEffort, Slice: share.WholeGPU, Enforcement: share.Strict}

func TestRequestOf(t *testing.T) {
	cases := map[string]struct {
		pod       *v1.Pod
		wantTerms share.Terms
		want      []share.Container
	}{
		"everything defaults": {
			pod:       podOf(nil, container("main", "sm=24", "mem=8192", "vgpu=1")),
			wantTerms: defaultTerms,
			want:      []share.Container{{Name: "main", VGPUs: 1, Share: shareOf(240, 240, 1000, 1000, 8192)}},
		},
		"everything written": {
			pod: podOf(map[string]string{
				AnnotationQuotaLimit: "80", AnnotationClass: "slo", AnnotationIsolation: "mps", AnnotationModel: "H200,A100",
				AnnotationWorkload: "resnet", AnnotationSlice: "1g.18gb", AnnotationEnforcement: "best-effort",
			}, container("main", "sm=24", "quota=40", "mem=8192", "vgpu=1", "sm-time=960")),
			wantTerms: share.Terms{Isolation: share.MPS, Priority: share.SLO, Models: []string{"A100", "H200"}, Workload: "resnet",
				Slice: "1g.18gb", Enforcement: share.BestEffortEnforcement},
			want: []share.Container{{Name: "main", VGPUs: 1, Share: shareOf(240, 240, 400, 800, 8192)}},
		},
		"sidecars first, others left out": {
			pod: withInit(podOf(map[string]string{AnnotationSMLimit: "60"},
				container("logger"), container("main", "sm=100", "mem=10", "vgpu=2", "sm-time=10000")),
				container("setup"), sidecar(container("server", "sm=10", "mem=1", "vgpu=1"))),
			wantTerms: defaultTerms,
			want: []share.Container{
				{Name: "server", VGPUs: 1, Share: shareOf(100, 600, 1000, 1000, 1)},
				{Name: "main", VGPUs: 2, Share: shareOf(500, 600, 1000, 1000, 5)},
			},
		},
		"weights": {
			pod: podOf(map[string]string{AnnotationWeights: weightsB + "=2Gi," + weightsA + "=3Mi"}, container("main", "sm=24", "mem=8192", "vgpu=1")),
			wantTerms: share.Terms{Priority: share.BestEffort, Slice: share.WholeGPU, Enforcement: share.Strict,
				Weights: []share.Weights{{Digest: weightsA, Memory: 3 * share.MiB}, {Digest: weightsB, Memory: 2048 * share.MiB}}},
			want: []share.Container{{Name: "main", VGPUs: 1, Share: shareOf(240, 240, 1000, 1000, 8192)}},
		},
		"wish and anti-affinity": {
			pod: podOf(map[string]string{AnnotationPacking: "spread", AnnotationAntiAffinity: "bert"}, container("main", "sm=24", "mem=8192", "vgpu=1")),
			wantTerms: share.Terms{Priority: share.BestEffort, Slice: share.WholeGPU, Enforcement: share.Strict,
				Packing: share.Spread, AntiAffinity: "bert"},
			want: []share.Container{{Name: "main", VGPUs: 1, Share: shareOf(240, 240, 1000, 1000, 8192)}},
		},
		"slices of containers": {
			pod: withInit(podOf(map[string]string{AnnotationSlice: "mig", AnnotationContainerSlice + "main": "3g.40gb", AnnotationContainerSlice + "server": "gpu",
				AnnotationContainerSlice + "second": ""}, container("main", "sm=100", "mem=10", "vgpu=1"), container("second", "sm=100", "mem=10", "vgpu=1")),
				sidecar(container("server", "sm=10", "mem=1", "vgpu=1"))),
			wantTerms: share.Terms{Priority: share.BestEffort, Slice: share.AnyMIG, Enforcement: share.Strict},
			want: []share.Container{
				{Name: "server", VGPUs: 1, Share: shareOf(100, 100, 1000, 1000, 1), Slice: "gpu"},
				{Name: "main", VGPUs: 1, Share: shareOf(1000, 1000, 1000, 1000, 10), Slice: "3g.40gb"},
				{Name: "second", VGPUs: 1, Share: shareOf(1000, 1000, 1000, 1000, 10)},
			},
		},
		"whole numbers in other spelling": {
			pod:       podOf(nil, container("main", "sm=1000m", "mem=8Ki", "vgpu=1.0")),
			wantTerms: defaultTerms,
			want:      []share.Container{{Name: "main", VGPUs: 1, Share: shareOf(10, 10, 1000, 1000, 8192)}},
		},
		"unknown annotations of gshare are ignored": {
			pod:       podOf(map[string]string{"gshare.dev/note": "?", AnnotationPlacement: "{"}, container("main", "sm=1", "mem=1", "vgpu=1")),
			wantTerms: defaultTerms,
			want:      []share.Container{{Name: "main", VGPUs: 1, Share: shareOf(10, 10, 1000, 1000, 1)}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, asks, err := RequestOf(tc.pod)
			if err != nil || !asks {
				t.Fatalf("RequestOf: asks %v, %v", asks, err)
			}
			if diff := cmp.Diff(share.Request{Terms: tc.wantTerms, Containers: tc.want}, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestOfWithoutShare(t *testing.T) {
	pod := podOf(map[string]string{AnnotationClass: "nonsense"}, container("main"))
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{"cpu": quantity(1), "nvidia.com/gpu": quantity(1), "gshare.dev/sm": quantity(1)}
	if req, asks, err := RequestOf(pod); asks || err != nil || len(req.Containers) > 0 {
		t.Errorf("RequestOf = %+v, %v, %v, want nothing", req, asks, err)
	}
	if n := testing.AllocsPerRun(100, func() { RequestsShare(pod) }); n > 0 {
		t.Errorf("Asks allocates %v times", n)
	}
}

func TestRequestOfRefuses(t *testing.T) {
	good := []string{"sm=24", "mem=8192", "vgpu=1"}
	cases := map[string]struct {
		pod     *v1.Pod
		wantErr string
	}{
		"sm 0":                  {podOf(nil, container("m", "sm=0", "mem=1", "vgpu=1")), `container "m": gshare/sm: 0 percent points`},
		"sm negative":           {podOf(nil, container("m", "sm=-5", "mem=1", "vgpu=1")), `container "m": gshare/sm: -5 percent points`},
		"sm not whole":          {podOf(nil, container("m", "sm=500m", "mem=1", "vgpu=1")), `container "m": gshare/sm: 500m is not a whole number`},
		"sm too large":          {podOf(nil, container("m", "sm=1e30", "mem=1", "vgpu=1")), `container "m": gshare/sm: 1e30 is not a whole number, or too large`},
		"sm with many zeros":    {podOf(nil, container("m", "sm=1e300000000", "mem=1", "vgpu=1")), `container "m": gshare/sm: a number of more than 64 zeros`},
		"mem with a suffix":     {podOf(nil, container("m", "sm=1", "mem=8Gi", "vgpu=1")), `container "m": gshare/mem: 8589934592 MiB is outside`},
		"mem not whole":         {podOf(nil, container("m", "sm=1", "mem=1500m", "vgpu=1")), `container "m": gshare/mem: 1500m is not`},
		"more than a node has":  {podOf(nil, container("m", "sm=6500", "mem=65", "vgpu=65")), `container "m": gshare/vgpu: 65 vGPUs is outside 1 to 64`},
		"quota without sm":      {podOf(nil, container("m", "quota=50", "vgpu=1")), `container "m": gshare/sm: a share needs it`},
		"mem without sm":        {podOf(nil, container("m", "mem=50", "vgpu=1")), `container "m": gshare/sm: a share needs it`},
		"only sm-time":          {podOf(nil, container("m", "sm-time=50")), `container "m": gshare/sm: a share needs it`},
		"no mem":                {podOf(nil, container("m", "sm=50", "vgpu=1")), `container "m": gshare/mem: a share needs it`},
		"no vgpu":               {podOf(nil, container("m", "sm=50", "mem=1")), `container "m": gshare/vgpu: a share needs gshare/vgpu`},
		"sm uneven":             {podOf(nil, container("m", "sm=30", "mem=4", "vgpu=4")), `container "m": gshare/sm: 30 percent points cannot be divided evenly among 4 vGPUs`},
		"mem uneven":            {podOf(nil, container("m", "sm=40", "mem=5", "vgpu=4")), `container "m": gshare/mem: 5 MiB cannot be divided evenly among 4 vGPUs`},
		"quota with vGPUs":      {podOf(nil, container("m", "sm=40", "quota=99", "mem=4", "vgpu=4")), `container "m": gshare/quota: 99% with 4 vGPUs`},
		"sm-time wrong":         {podOf(nil, container("m", "sm=40", "quota=50", "mem=4", "vgpu=1", "sm-time=4000")), `container "m": gshare/sm-time: 4000 is not sm x quota, which is 2000`},
		"sm-time not whole":     {podOf(nil, container("m", "sm=40", "mem=4", "vgpu=1", "sm-time=1m")), `container "m": gshare/sm-time: 1m is not`},
		"unknown resources":     {podOf(nil, container("m", "sm=40", "zeta=4", "smm=1")), `container "m": gshare/smm: gshare has no such resource`},
		"only unknown resource": {podOf(nil, container("m", "gpu=1")), `container "m": gshare/gpu: gshare has no such resource`},
		"second container": {podOf(nil, container("m", good...), container("n", "sm=1")),
			`container "n": gshare/vgpu: `},
		"request is not limit": {withRequest(podOf(nil, container("m", good...)), ResourceSM, "12"), `container "m": gshare/sm: the request of 12 is not the limit of 24`},
		"request not whole":    {withRequest(podOf(nil, container("m", good...)), ResourceSM, "12m"), `container "m": gshare/sm: 12m is not a whole number`},
		"request alone":        {withRequest(podOf(nil, container("m", good...)), ResourceQuota, "12"), `container "m": gshare/quota: it is in the requests but not in the limits`},
		"unknown request":      {withRequest(podOf(nil, container("m")), "gshare/x", "1"), `container "m": gshare/x: gshare has no such resource`},
		"init container":       {withInit(podOf(nil, container("m", good...)), container("i", good...)), `container "i": gshare/sm: an init container that ends may not ask`},
		"only init container":  {withInit(podOf(nil, container("m")), container("i", "vgpu=1")), `container "i": gshare/sm: an init container that ends may not ask`},
		"pod level":            {withPodLevel(podOf(nil, container("m", good...))), "gshare/mem: only containers may ask"},
		"overhead":             {withOverhead(podOf(nil, container("m", good...))), "gshare/sm: only containers may ask"},
		"class":                {podOf(map[string]string{AnnotationClass: "gold"}, container("m", good...)), "gshare.dev/class: "},
		"isolation":            {podOf(map[string]string{AnnotationIsolation: "mixed"}, container("m", good...)), "gshare.dev/isolation: "},
		"swap of two":          {podOf(map[string]string{AnnotationIsolation: "swap"}, container("m", good...), container("n", good...)), "gshare.dev/isolation: swap is for one vGPU of a pod, not for 2"},
		"model":                {podOf(map[string]string{AnnotationModel: "A100,"}, container("m", good...)), "gshare.dev/model: "},
		"workload":             {podOf(map[string]string{AnnotationWorkload: "a/b"}, container("m", good...)), "gshare.dev/workload: "},
		"packing":              {podOf(map[string]string{AnnotationPacking: "dense"}, container("m", good...)), "gshare.dev/packing: "},
		"anti-affinity":        {podOf(map[string]string{AnnotationAntiAffinity: "a/b"}, container("m", good...)), "gshare.dev/anti-affinity: "},
		"slice":                {podOf(map[string]string{AnnotationSlice: "half"}, container("m", good...)), "gshare.dev/slice: "},
		"slice of a container": {podOf(map[string]string{AnnotationContainerSlice + "m": "half"}, container("m", good...)), `container "m": gshare.dev/slice.m: "half" is neither`},
		"slice of no container": {podOf(map[string]string{AnnotationContainerSlice + "y": "mig", AnnotationContainerSlice + "x": ""}, container("m", good...)),
			"gshare.dev/slice.x: the pod has no container of that name that asks"},
		"slice of one that asks not": {podOf(map[string]string{AnnotationContainerSlice + "log": "mig"}, container("m", good...), container("log")), "gshare.dev/slice.log: "},
		"enforcement":                {podOf(map[string]string{AnnotationEnforcement: "Strict"}, container("m", good...)), "gshare.dev/enforcement: "},
		"size":                       {podOf(map[string]string{AnnotationMemory: "8GB"}, container("m", good...)), `gshare.dev/mem: "8GB" is not a whole number of Mi`},
		"size of no container":       {podOf(map[string]string{AnnotationMemory: "16Gi"}, container("m", good...)), "gshare.dev/mem: no container has 16384 MiB"},
		"size not filled in":         {podOf(map[string]string{AnnotationMemory: "16Gi"}, container("m", "sm=24", "vgpu=1")), `container "m": gshare/mem: a share needs it`},
		"weights":                    {podOf(map[string]string{AnnotationWeights: weightsA}, container("m", good...)), `gshare.dev/weights: "" is not a whole number of Mi`},
		"sm-limit":                   {podOf(map[string]string{AnnotationSMLimit: "48%"}, container("m", good...)), `gshare.dev/sm-limit: "48%" is not a whole number`},
		"sm-limit low":               {podOf(map[string]string{AnnotationSMLimit: "23"}, container("m", good...)), `container "m": gshare.dev/sm-limit: 23% is below`},
		"quota-limit":                {podOf(map[string]string{AnnotationQuotaLimit: "x"}, container("m", good...)), "gshare.dev/quota-limit: "},
		"quota-limit low":            {podOf(map[string]string{AnnotationQuotaLimit: "80"}, container("m", good...)), `container "m": gshare.dev/quota-limit: 80% is below`},
		"mps with sm-limit": {podOf(map[string]string{AnnotationIsolation: "mps", AnnotationSMLimit: "48"}, container("m", good...)),
			`container "m": gshare.dev/isolation: mps fixes the SMs`},
		"elastic with quota": {podOf(map[string]string{AnnotationIsolation: "elastic"}, container("m", "sm=1", "quota=50", "mem=1", "vgpu=1")),
			`container "m": gshare.dev/isolation: elastic needs quota 100%`},
		"both elastic": {podOf(map[string]string{AnnotationSMLimit: "48"}, container("m", "sm=1", "quota=50", "mem=1", "vgpu=1")),
			`container "m": gshare.dev/sm-limit: SMs above the request`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req, asks, err := RequestOf(tc.pod)
			var field *share.FieldError
			if !asks || !errors.As(err, &field) || !strings.HasPrefix(err.Error(), tc.wantErr) {
				t.Errorf("asks %v, error\n%v, want\n%s", asks, err, tc.wantErr)
			}
			if diff := cmp.Diff(share.Request{}, req); diff != "" {
				t.Errorf("a refused pod has a request: %s", diff)
			}
		})
	}
}

func withRequest(pod *v1.Pod, name v1.ResourceName, value string) *v1.Pod {
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(value)}
	return pod
}

func withPodLevel(pod *v1.Pod) *v1.Pod {
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{ResourceMemory: quantity(1)}}
	return pod
}

func withOverhead(pod *v1.Pod) *v1.Pod {
	pod.Spec.Overhead = v1.ResourceList{ResourceSM: quantity(1)}
	return pod
}

// TestZeroWithExponent reads a zero that is written with a large exponent often enough that it would take hours to multiply it out.
func TestZeroWithExponent(t *testing.T) {
	read := make(chan error, 1)
	go func() {
		list := v1.ResourceList{ResourceSM: resource.MustParse("0e2000000000")}
		for range 10_000 {
			if n, err := readInteger(ResourceSM, list); err != nil || *n != 0 {
				read <- fmt.Errorf("%v, %w", n, err)
				return
			}
		}
		read <- nil
	}()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it takes longer than 30 s")
	}
}

// Digests of weights.
const (
	weightsA = "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
	weightsB = "sha256:00000000000000000000000000000000000000000000000000000000000000bb"
)

// TestZeroAsksForNothing: gshare resources of 0 ask for no share, as those that the admission policies write where a LimitRange has filled in a share.
func TestZeroAsksForNothing(t *testing.T) {
	for name, test := range map[string]struct {
		limits v1.ResourceList
		asks   bool
	}{
		"none":             {nil, false},
		"zeros":            {v1.ResourceList{ResourceSM: resource.MustParse("0"), ResourceMemory: resource.MustParse("0Ki")}, false},
		"zero and another": {v1.ResourceList{ResourceSM: resource.MustParse("0"), ResourceMemory: resource.MustParse("1")}, true},
		"zero, unknown":    {v1.ResourceList{"gshare/foo": resource.MustParse("0")}, false},
		"unknown":          {v1.ResourceList{"gshare/foo": resource.MustParse("1")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: test.limits}}}}}
			Complete(pod)
			if _, asks, err := RequestOf(pod); asks != test.asks || asks == (err == nil) {
				t.Errorf("asks %v: %v", asks, err)
			}
			if completed := pod.Spec.SchedulerName == SchedulerName; completed != test.asks {
				t.Errorf("completed: %v", completed)
			}
		})
	}
}
