package admission_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// testRanges: a LimitRange bounds shares and completes them, and gives none to a container that asks for none.
func (c *cluster) testRanges(t *testing.T) {
	list := func(written ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for _, w := range written {
			name, value, _ := strings.Cut(w, "=")
			l[v1.ResourceName(name)] = resource.MustParse(value)
		}
		return l
	}
	for namespace, item := range map[string]v1.LimitRangeItem{
		"memory": {Default: list("gshare/mem=4096"), DefaultRequest: list("gshare/mem=4096")},
		"bounds": {Max: list("gshare/sm=50", "gshare/mem=8192")},
		"all":    {Max: list("gshare/sm=50", "gshare/mem=8192", "gshare/quota=50", "gshare/vgpu=2", "gshare/sm-time=2500", "cpu=4")},
		"cpu":    {Default: list("cpu=1", "memory=1Gi"), DefaultRequest: list("cpu=500m", "memory=512Mi"), Max: list("cpu=2")},
		"shares": {Default: list("gshare/sm=10", "gshare/mem=1024", "cpu=1")},
	} {
		item.Type = v1.LimitTypeContainer
		c.namespace(t, namespace, nil)
		r := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}
		if _, err := c.CoreV1().LimitRanges(namespace).Create(c.ctx, r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	none := "vgpu 0 sm 0 quota 0 time 0 mem 0"
	for _, test := range []struct {
		namespace, name string
		pod             *v1.Pod
		want            string // what the first container asks for, or with "refused: " the beginning of the reason
	}{
		{"memory", "plain", plain(), none},
		{"memory", "plain with an init container", plain(initially(container("init", "cpu=1")), sidecar(container("side"))), none},
		{"memory", "share", plain(limits("sm=10")), "vgpu 1 sm 10 quota 100 time 1000 mem 4096"},
		{"memory", "share beside an init container", plain(limits("sm=10"), initially(container("init"))), "vgpu 1 sm 10 quota 100 time 1000 mem 4096"},
		{"memory", "size", plain(limits("sm=10"), says("mem", "2Gi")), "vgpu 1 sm 10 quota 100 time 1000 mem 2048"},
		{"memory", "written", plain(limits("sm=10", "mem=5")), "vgpu 1 sm 10 quota 100 time 1000 mem 5"},
		{"memory", "memory alone", plain(limits("mem=5")), "refused: gshare/sm: a share needs it"},
		{"bounds", "plain", plain(), none},
		{"bounds", "zeros", plain(limits("sm=0", "mem=0")), none},
		{"bounds", "size", plain(limits("sm=10"), says("mem", "4Gi")), "vgpu 1 sm 10 quota 100 time 1000 mem 4096"},
		{"bounds", "too large a size", plain(limits("sm=10"), says("mem", "9Gi")), "refused: maximum gshare/mem usage per Container is 8192"},
		{"bounds", "too many SMs", plain(limits("sm=60"), says("mem", "4Gi")), "refused: maximum gshare/sm usage per Container is 50"},
		{"bounds", "beside one", plain(limits("sm=10"), says("mem", "4Gi"), another(container("log"))), "vgpu 1 sm 10 quota 100 time 1000 mem 4096"},
		{"bounds", "zero SMs", plain(limits("sm=0", "mem=5")), "refused: gshare/sm: a share needs it"},
		{"all", "plain", plain(), none},
		{"all", "share", plain(limits("sm=10")), "vgpu 1 sm 10 quota 50 time 500 mem 8192"},
		{"all", "written", plain(limits("sm=10", "quota=20", "mem=7")), "vgpu 1 sm 10 quota 20 time 200 mem 7"},
		{"cpu", "plain", plain(), none},
		{"cpu", "share", pod(), completedPod},
		{"shares", "plain", plain(), none},
		{"shares", "memory", plain(limits("mem=7")), "vgpu 1 sm 10 quota 100 time 1000 mem 7"},
		{"shares", "share", plain(limits("sm=20")), "vgpu 1 sm 20 quota 100 time 2000 mem 1024"},
	} {
		t.Run(test.namespace+"/"+test.name, func(t *testing.T) {
			got, err := c.try(test.namespace, test.pod)
			if reason, refused := strings.CutPrefix(test.want, "refused: "); refused || err != nil {
				if !refused || err == nil || !strings.Contains(err.Error(), reason) {
					t.Fatalf("%v, want %s", err, test.want)
				}
				return
			}
			for _, list := range []v1.ResourceList{got.Spec.Containers[0].Resources.Limits, got.Spec.Containers[0].Resources.Requests} {
				if text := numbers(list); text != test.want {
					t.Errorf("asks for %s, want %s", text, test.want)
				}
			}
			for _, other := range append(got.Spec.Containers[1:], got.Spec.InitContainers...) {
				if text := numbers(other.Resources.Limits); text != none {
					t.Errorf("%s asks for %s", other.Name, text)
				}
			}
			if asks := kube.RequestsShare(got); asks != (test.want != none) || (got.Spec.SchedulerName == kube.SchedulerName) != asks {
				t.Errorf("asks for a share: %v; scheduler %s", asks, got.Spec.SchedulerName)
			}
		})
	}
}
