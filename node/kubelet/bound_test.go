package kubelet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/gshare-dev/gshare/node/kubelet"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// bind returns the node's pods as an API server with these has them.
func bind(t *testing.T, pods ...*v1.Pod) (*fake.Clientset, *kubelet.Bound) {
	t.Helper()
	client := fake.NewClientset()
	for _, p := range pods {
		put(t, client, p)
	}
	bound := kubelet.WatchBound(client, "n")
	t.Cleanup(bound.Close)
	return client, bound
}

func put(t *testing.T, client *fake.Clientset, p *v1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods("ns").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what a watch brings.
func eventually(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextCancel(patient(t), time.Millisecond, true, func(ctx context.Context) (bool, error) { return is(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestBound: a pod is there from its binding to its deletion, and only those of the node are asked for.
func TestBound(t *testing.T) {
	client, bound := bind(t, pod("a", "x"))
	ctx := patient(t)
	if pods, err := bound.List(ctx); err != nil || len(pods) != 1 || pods[0].UID != "a" {
		t.Fatalf("%v, %v", pods, err)
	}
	for _, action := range client.Actions() {
		if list, ok := action.(kubetesting.ListAction); ok && list.GetListRestrictions().Fields.String() != "spec.nodeName=n" {
			t.Errorf("asks for %q", list.GetListRestrictions().Fields)
		}
	}
	got, err := bound.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	got.Name = "changed" // of the caller
	if again, err := bound.Get(ctx, "a"); err != nil || again.Name != "pod-a" {
		t.Errorf("%v, %v", again, err)
	}
	put(t, client, pod("b", "x")) // once it is seen, the watch has begun: the client sends none of the deletions before
	eventually(t, "a second pod", func(ctx context.Context) bool {
		_, err := bound.Get(ctx, "b")
		return err == nil
	})
	if err := client.CoreV1().Pods("ns").Delete(ctx, "pod-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deletion", func(ctx context.Context) bool {
		_, err := bound.Get(ctx, "a")
		return errors.Is(err, kubelet.ErrNoPod)
	})
}

// TestBoundUnread: without an answer of the API server no pod is known to be gone.
func TestBoundUnread(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	bound := kubelet.WatchBound(client, "n")
	t.Cleanup(bound.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if pods, err := bound.List(ctx); err == nil {
		t.Errorf("lists %v", pods)
	}
	if pods, err := bound.TryList(ctx); err == nil {
		t.Errorf("lists %v", pods)
	}
	if _, err := bound.Get(ctx, "a"); err == nil || errors.Is(err, kubelet.ErrNoPod) {
		t.Errorf("gets %v", err)
	}
}

// TestBoundWatch reports the end of a pod and a change of its limit, and no other change.
func TestBoundWatch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		want   int
	}{
		"label": {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, 0},
		"limit": {func(p *v1.Pod) { p.Annotations = map[string]string{kube.AnnotationSMLimit: "50"} }, 1},
		"end":   {func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, bound := bind(t, pod("a", "x"), pod("b", "x"))
				if _, err := bound.List(patient(t)); err != nil {
					t.Fatal(err)
				}
				changes := 0
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- bound.Watch(ctx, func() { changes++ }) }()
				synctest.Wait()
				p := pod("a", "x")
				c.change(p)
				if _, err := client.CoreV1().Pods("ns").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if changes != c.want {
					t.Errorf("%d changes, want %d", changes, c.want)
				}
				if err := client.CoreV1().Pods("ns").Delete(t.Context(), "pod-b", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if changes != c.want+1 {
					t.Errorf("%d changes after a deletion, want %d", changes, c.want+1)
				}
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// TestReplacedName: the API server has a new pod of a name before the kubelet has forgotten the old one, whose device IDs it names. That is
// corrected once the kubelet allocates the new pod's own.
func TestReplacedName(t *testing.T) {
	k := fakekubelet.New(t.TempDir(), string(kube.ResourceVGPU))
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	old, young := pod("old", "x"), pod("young", "x")
	old.Name, young.Name = "same", "same"
	_, bound := bind(t, young)
	records, err := kubelet.DialRecords(k.PodResources(), bound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(records.Close)
	ctx := patient(t)
	k.AddPod(old)
	k.Give("old", "x", []string{"g0-0"})
	if _, err := records.Claim(ctx, []string{"g0-1"}); !errors.Is(err, kubelet.ErrNoOwner) {
		t.Fatal(err)
	}
	k.RemovePod("old")
	k.AddPod(young)
	k.Give("young", "x", []string{"g0-1"})
	claim, err := records.Claim(ctx, []string{"g0-1"}) // as the kubelet repeats the start
	if err != nil || claim.Pod.UID != "young" {
		t.Fatalf("%+v, %v", claim, err)
	}
	if claims, err := records.All(ctx); err != nil || len(claims) != 1 {
		t.Errorf("%+v, %v", claims, err)
	}
}
