package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// nodeOf returns a node with GPUs of 40 GiB, whose IDs are GPU-NAME-0 and so on.
func nodeOf(t *testing.T, name, model string, gpus int) *v1.Node {
	t.Helper()
	var inventory kube.Inventory
	for i := range gpus {
		id := fmt.Sprintf("GPU-%s-%d", name, i)
		inventory.Slices = append(inventory.Slices, kube.Slice{ID: id, Device: id, Model: model, SMs: 108, MemoryMiB: 40960, Healthy: true,
			Classes: []share.Isolation{share.MPS}})
	}
	text, err := kube.EncodeInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}}}
}

// podOn returns a pod that is bound to a node and placed on its first GPU.
func podOn(t *testing.T, node, name, quota string) *v1.Pod {
	t.Helper()
	pod := asking(name, quota)
	pod.Spec.NodeName = node
	pod.Annotations = map[string]string{kube.AnnotationPlacement: placement(t, node, pod)}
	return pod
}

// placement returns the annotation that places a pod on a node's first GPU.
func placement(t *testing.T, node string, pod *v1.Pod) string {
	t.Helper()
	request, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "GPU-" + node + "-0", Class: share.MPS, Priority: request.Priority, Share: request.Containers[0].Share}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func get(t *testing.T, objects []runtime.Object, query string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	Handler(fake.NewClientset(objects...)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, Path+query, nil))
	return answer
}

// TestPage: the page draws placed pods and nothing else.
func TestPage(t *testing.T) {
	ended := podOn(t, "n1", "ended", "10")
	ended.Status.Phase = v1.PodSucceeded
	objects := []runtime.Object{
		nodeOf(t, "n1", "A100", 2), nodeOf(t, "n2", "H100", 1), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
		podOn(t, "n1", "one", "60"), podOn(t, "n1", "two", "40"), podOn(t, "n2", "three", "100"), asking("waits", "100"), ended,
	}
	for query, test := range map[string]struct{ with, without []string }{
		"": {[]string{
			"2 nodes with GPUs", "team/one/main", "team/two/main", "team/three/main", "n1 GPU 1", "n2 GPU 0",
			`<td class="number">2</td><td class="number">2</td><td class="number">25.0 %</td><td class="number">10.0 %</td>`,
		}, []string{"waits", "ended", "plain", "more slices"}},
		"?node=n2":    {[]string{"2 nodes with GPUs", "Shown: n2", "team/three/main", "n2 GPU 0"}, []string{"team/one", "n1 GPU"}},
		"?node=plain": {[]string{"Shown: plain", "<svg"}, []string{"team/", "GPU 0"}},
	} {
		t.Run(query, func(t *testing.T) {
			answer := get(t, objects, query)
			body := answer.Body.String()
			for _, word := range test.with {
				if !strings.Contains(body, word) {
					t.Errorf("the page lacks %q:\n%s", word, body)
				}
			}
			for _, word := range test.without {
				if strings.Contains(body, word) {
					t.Errorf("the page contains %q", word)
				}
			}
			if answer.Code != 200 || answer.Header().Get("Content-Security-Policy") != contentPolicy || answer.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d %v", answer.Code, answer.Header())
			}
		})
	}
}

// TestWindow: each slice is drawn over the window of its node.
func TestWindow(t *testing.T) {
	fast := nodeOf(t, "fast", "A100", 1)
	fast.Annotations[kube.AnnotationInventory] = strings.Replace(fast.Annotations[kube.AnnotationInventory],
		`"v":1,`, `"v":1,"rules":{"gammaPercent":150,"mixTenants":false,"window":"50ms"},`, 1)
	body := get(t, []runtime.Object{nodeOf(t, "default", "A100", 1), fast}, "").Body.String()
	for _, want := range []string{"default GPU 0  A100, slot table, window 100 ms", "fast GPU 0  A100, slot table, window 50 ms"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
}

// TestHostile: names and annotations are escaped.
func TestHostile(t *testing.T) {
	const evil = `<script>alert("x")</script>`
	node := nodeOf(t, "n1", "A100", 1)
	node.Annotations[kube.AnnotationInventory] = strings.ReplaceAll(node.Annotations[kube.AnnotationInventory], "A100", `<b>A100`)
	for _, query := range []string{"", "?node=" + evil} {
		body := get(t, []runtime.Object{node, podOn(t, "n1", "one", "60")}, query).Body.String()
		if strings.Contains(body, "<script") || strings.Contains(body, "<b>") || !strings.Contains(body, "<h1>") {
			t.Errorf("%s:\n%s", query, body)
		}
	}
}

// TestBounded: the page of a large cluster draws a limited number of slices.
func TestBounded(t *testing.T) {
	var objects []runtime.Object
	for i := range 20 {
		objects = append(objects, nodeOf(t, fmt.Sprintf("n%02d", i), "A100", 8))
	}
	body := get(t, objects, "").Body.String()
	if n := strings.Count(body, "slot table"); n != maxPictures || !strings.Contains(body, "96 more slices") {
		t.Errorf("%d slices are drawn", n)
	}
}

// TestReads: the cluster is read once for several viewers, and errors are not cached.
func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // pages are as old as the test says, not as the machine is slow
		client := fake.NewClientset(nodeOf(t, "n1", "A100", 1))
		broken := true
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return broken, nil, fmt.Errorf("secret reason")
		})
		handler := Handler(client)
		ask := func() *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, Path, nil))
			return answer
		}
		if answer := ask(); answer.Code != 503 || strings.Contains(answer.Body.String(), "secret") {
			t.Errorf("with a failing API server: %d %s", answer.Code, answer.Body)
		}
		broken = false
		client.ClearActions()
		for range 10 {
			if answer := ask(); answer.Code != 200 {
				t.Fatalf("%d %s", answer.Code, answer.Body)
			}
		}
		if n := len(client.Actions()); n != 2 {
			t.Errorf("%d requests for ten pages", n)
		}
		time.Sleep(cacheTTL)
		if ask(); len(client.Actions()) != 4 {
			t.Errorf("%d requests with a page that is too old", len(client.Actions()))
		}
	})
}

func asking(name, quota string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Image: "image", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			kube.ResourceSM: resource.MustParse("50"), kube.ResourceQuota: resource.MustParse(quota), kube.ResourceMemory: resource.MustParse("4096"),
		}},
	}}}}
	kube.Complete(pod)
	return pod
}
