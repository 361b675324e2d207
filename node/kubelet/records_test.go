package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/kubelet"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

func start(t *testing.T) (*fakekubelet.Kubelet, *kubelet.PodsAPI, *kubelet.Records) {
	t.Helper()
	k := fakekubelet.New(t.TempDir(), string(kube.ResourceVGPU))
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	pods, err := kubelet.DialPods(k.Pods())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pods.Close)
	records, err := kubelet.DialRecords(k.PodResources(), pods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(records.Close)
	return k, pods, records
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func pod(uid string, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: "pod-" + uid}}
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{kube.ResourceVGPU: resource.MustParse("1")},
		}})
	}
	return p
}

func TestClaim(t *testing.T) {
	k, _, records := start(t)
	ctx := patient(t)
	k.AddPod(pod("a", "x", "y"))
	k.Give("a", "x", []string{"g0-0"})
	k.Give("a", "y", []string{"g1-0", "g0-1"})
	for container, deviceIDs := range map[string][]string{"x": {"g0-0"}, "y": {"g0-1", "g1-0"}} {
		t.Run(container, func(t *testing.T) {
			c, err := records.Claim(ctx, deviceIDs)
			if err != nil || c.Container != container || c.Pod.UID != "a" {
				t.Errorf("%v: %+v, %v; want %s", deviceIDs, c.Container, err, container)
			}
		})
	}
	for _, deviceIDs := range [][]string{{"g0-1"}, {"g0-0", "g0-1"}, {"g7-7"}} {
		t.Run(fmt.Sprint(deviceIDs), func(t *testing.T) {
			if c, err := records.Claim(ctx, deviceIDs); !errors.Is(err, kubelet.ErrNoOwner) {
				t.Errorf("%v belong to %s, %v", deviceIDs, c.Container, err)
			}
		})
	}
}

// TestLent: what other plugins have given is told until its pod ends, and what gshare has given is not among it.
func TestLent(t *testing.T) {
	k, _, records := start(t)
	ctx := patient(t)
	k.AddPod(pod("a", "x", "y"))
	k.Give("a", "x", []string{"g0-0"})
	k.AllocateElsewhere("a", "y", "nvidia.com/gpu", "GPU-0")
	want := []kubelet.Allocation{{Namespace: "ns", Pod: "pod-a", Container: "y", Resource: "nvidia.com/gpu", Device: "GPU-0"}}
	if got, err := records.AllocatedElsewhere(ctx); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	k.Busy.Store(1)
	if got, err := records.AllocatedElsewhere(ctx); err == nil {
		t.Errorf("refused, it says %+v", got)
	}
	k.EndPod("a", v1.PodSucceeded)
	if got, err := records.AllocatedElsewhere(ctx); err != nil || len(got) > 0 {
		t.Errorf("%+v, %v; want nothing", got, err)
	}
}

// TestReused: what a pod held is another's now. Nobody may be taken for its predecessor.
func TestReused(t *testing.T) {
	k, _, records := start(t)
	ctx := patient(t)
	k.AddPod(pod("old", "x"))
	k.Give("old", "x", []string{"g0-0"})
	if c, err := records.Claim(ctx, []string{"g0-0"}); err != nil || c.Pod.UID != "old" {
		t.Fatal(c, err)
	}
	k.EndPod("old", v1.PodSucceeded)
	k.AddPod(pod("new", "x"))
	records.Allocated([]string{"g0-0"})
	if c, err := records.Claim(ctx, []string{"g0-0"}); !errors.Is(err, kubelet.ErrNoOwner) {
		t.Errorf("before the kubelet has recorded it, the device ID is %s's (%v)", c.Container, err)
	}
	k.Give("new", "x", []string{"g0-0"})
	c, err := records.Claim(ctx, []string{"g0-0"})
	if err != nil || c.Pod.UID != "new" {
		t.Errorf("the device ID is %+v's (%v), want new's", c.Pod, err)
	}
	if !records.StillHeld(c) {
		t.Error("a fresh claim does not hold")
	}
	records.Allocated([]string{"g0-0", "g0-5"})
	if records.StillHeld(c) {
		t.Error("a claim holds though its device ID has been given away")
	}
}

// TestForgetAll: after an Allocate that went unnoticed a device ID is not taken for its last owner's.
func TestForgetAll(t *testing.T) {
	k, _, records := start(t)
	ctx := patient(t)
	k.AddPod(pod("old", "x"))
	k.Give("old", "x", []string{"g0-0"})
	if c, err := records.Claim(ctx, []string{"g0-0"}); err != nil || c.Pod.UID != "old" {
		t.Fatal(c, err)
	}
	k.RemovePod("old")
	k.AddPod(pod("old", "x")) // it is listed, but has given its device ID back
	k.AddPod(pod("new", "x"))
	k.Give("new", "x", []string{"g0-0"})
	if c, err := records.Claim(ctx, []string{"g0-0"}); err != nil || c.Pod.UID != "old" {
		t.Fatalf("the device ID is %+v's (%v): the test shows nothing", c.Pod, err)
	}
	records.ForgetAll()
	if c, err := records.Claim(ctx, []string{"g0-0"}); err != nil || c.Pod.UID != "new" {
		t.Errorf("the device ID is %+v's (%v), want new's", c.Pod, err)
	}
}

// TestEnded: a device ID is not taken for that of a pod that has ended.
func TestEnded(t *testing.T) {
	k, _, records := start(t)
	ctx := patient(t)
	k.AddPod(pod("old", "x"))
	k.Give("old", "x", []string{"g0-0"})
	if c, err := records.Claim(ctx, []string{"g0-0"}); err != nil || c.Pod.UID != "old" {
		t.Fatal(c, err)
	}
	k.EndPod("old", v1.PodSucceeded)
	if c, err := records.Claim(ctx, []string{"g0-0"}); !errors.Is(err, kubelet.ErrNoOwner) {
		t.Errorf("the device ID is %+v's (%v)", c.Pod, err)
	}
}

// TestNamesake: with two pods of one name nobody knows whose record the kubelet gives.
func TestNamesake(t *testing.T) {
	k, _, records := start(t)
	ctx := patient(t)
	old, next := pod("old", "x"), pod("new", "x")
	next.Name = old.Name
	k.AddPod(old)
	k.AddPod(next)
	k.Give("old", "x", []string{"g0-0"})
	if c, err := records.Claim(ctx, []string{"g0-0"}); !errors.Is(err, kubelet.ErrNoOwner) {
		t.Errorf("a device ID of one of two namesakes is %+v's (%v)", c.Pod, err)
	}
	k.RemovePod("new")
	if c, err := records.Claim(ctx, []string{"g0-0"}); err != nil || c.Pod.UID != "old" {
		t.Errorf("alone, it is %+v's (%v)", c.Pod, err)
	}
}

// TestGivenTwice is k8s#137534: the kubelet hands one device ID out twice.
func TestGivenTwice(t *testing.T) {
	k, _, records := start(t)
	for _, uid := range []string{"a", "b"} {
		k.AddPod(pod(uid, "x"))
		k.Give(types.UID(uid), "x", []string{"g0-0"})
	}
	if c, err := records.Claim(patient(t), []string{"g0-0"}); !errors.Is(err, kubelet.ErrTwoOwners) {
		t.Errorf("a device ID of two is %s's (%v)", c.Container, err)
	}
}

// TestBurst: a hundred containers that start at once cost the kubelet one Get for each pod, and no refusal reaches them.
func TestBurst(t *testing.T) {
	k, _, records := start(t)
	records.Unlimited()
	ctx := patient(t)
	for i := range 100 {
		uid := fmt.Sprint(i)
		k.AddPod(pod(uid, "x"))
		k.Give(types.UID(uid), "x", []string{"g0-" + uid})
	}
	k.Busy.Store(20)
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			c, err := records.Claim(ctx, []string{fmt.Sprintf("g0-%d", i)})
			if err != nil || string(c.Pod.UID) != fmt.Sprint(i) {
				t.Errorf("device ID %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if gets := k.Gets.Load(); gets < 100 || gets > 125 {
		t.Errorf("%d calls of Get for 100 pods and at most 20 refusals", gets)
	}
}

// TestKubeletStarts: what is asked of a kubelet that is away or starting is answered when it is there.
func TestKubeletStarts(t *testing.T) {
	k, pods, records := start(t)
	ctx := patient(t)
	k.AddPod(pod("a", "x"))
	k.Give("a", "x", []string{"g0-0"})
	k.Kill()
	answered := make(chan error, 1)
	go func() {
		_, err := records.Claim(ctx, []string{"g0-0"})
		answered <- err
	}()
	k.Starting.Store(true)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := pods.List(short); err == nil {
		t.Error("a kubelet that is starting has listed its pods")
	}
	k.Starting.Store(false)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestGone(t *testing.T) {
	k, pods, records := start(t)
	ctx := patient(t)
	if _, err := pods.Get(ctx, "nobody"); !errors.Is(err, kubelet.ErrNoPod) {
		t.Errorf("a pod that is not there: %v", err)
	}
	k.AddPod(pod("a", "x"))
	k.Give("a", "x", []string{"g0-0"})
	if _, err := records.Claim(ctx, []string{"g0-0"}); err != nil {
		t.Fatal(err)
	}
	k.RemovePod("a")
	if _, err := records.Claim(ctx, []string{"g0-0"}); !errors.Is(err, kubelet.ErrNoOwner) {
		t.Errorf("the device ID of a pod that is gone: %v", err)
	}
}

// TestAll leaves out what has ended and what holds nothing.
func TestAll(t *testing.T) {
	k, _, records := start(t)
	for _, uid := range []string{"a", "b", "c"} {
		k.AddPod(pod(uid, "x"))
	}
	k.Give("a", "x", []string{"g0-0"})
	k.Give("b", "x", []string{"g0-1"})
	k.EndPod("b", v1.PodFailed)
	claims, err := records.All(patient(t))
	if err != nil || len(claims) != 1 || claims[0].Pod.UID != "a" {
		t.Errorf("%+v, %v; want a's", claims, err)
	}
}
