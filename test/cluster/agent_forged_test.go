package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// testPolicies checks which writes the admission policies refuse. It acts as an administrator, so that nothing else refuses them.
func testPolicies(ctx context.Context, t *testing.T, a *agents) {
	a.create(ctx, t, ask(cluster.Pod("victim", "sleep", "inf"), 10, 10, 512))
	victim := a.runsAsPlaced(ctx, t, "victim")
	pods := a.Client().CoreV1().Pods("default")
	forged := kube.AnnotationPatch(kube.AnnotationPlacement, strings.Replace(victim.Annotations[kube.AnnotationPlacement], `"sm":100`, `"sm":900`, 1))
	copied := ask(cluster.Pod("copied", "sleep", "inf"), 10, 10, 512)
	copied.Annotations = map[string]string{kube.AnnotationPlacement: victim.Annotations[kube.AnnotationPlacement]}
	free := cluster.Pod("free", "sleep", "inf")
	free.Spec.SchedulerName = "nobody"
	a.create(ctx, t, free)
	agent, err := kubernetes.NewForConfig(a.ConfigFor(agentToken(ctx, t, a.Cluster, a.Nodes[0])))
	if err != nil {
		t.Fatal(err)
	}
	other := a.Nodes[1].Name
	elsewhere := a.Nodes[0]
	if elsewhere.Name == victim.Spec.NodeName {
		elsewhere = a.Nodes[1]
	}
	stranger, err := kubernetes.NewForConfig(a.ConfigFor(agentToken(ctx, t, a.Cluster, elsewhere)))
	if err != nil {
		t.Fatal(err)
	}
	annotate := func(pods typedv1.PodInterface, name, text string) error {
		_, err := pods.Patch(ctx, "victim", types.MergePatchType, kube.AnnotationPatch(name, text), metav1.PatchOptions{})
		return err
	}
	for name, try := range map[string]func() error{
		"edit": func() error {
			_, err := pods.Patch(ctx, "victim", types.MergePatchType, forged, metav1.PatchOptions{})
			return err
		},
		"edit through status": func() error {
			_, err := pods.Patch(ctx, "victim", types.MergePatchType, forged, metav1.PatchOptions{}, "status")
			return err
		},
		"create with an empty one": func() error {
			pod := cluster.Pod("empty", "sleep", "inf")
			pod.Annotations = map[string]string{kube.AnnotationPlacement: ""}
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			return err
		},
		"add an empty one": func() error {
			_, err := pods.Patch(ctx, "free", types.MergePatchType, kube.AnnotationPatch(kube.AnnotationPlacement, ""), metav1.PatchOptions{})
			return err
		},
		"create with a copy": func() error { _, err := pods.Create(ctx, copied, metav1.CreateOptions{}); return err },
		"bind as somebody else": func() error {
			return pods.Bind(ctx, &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "free", Annotations: copied.Annotations},
				Target:     v1.ObjectReference{Kind: "Node", Name: a.Nodes[0].Name},
			}, metav1.CreateOptions{})
		},
		"bind with the quota of a trial": func() error {
			return pods.Bind(ctx, &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "free", Annotations: map[string]string{kube.AnnotationTrialQuota: "20"}},
				Target:     v1.ObjectReference{Kind: "Node", Name: a.Nodes[0].Name},
			}, metav1.CreateOptions{})
		},
		"create with the quota of a trial": func() error {
			pod := cluster.Pod("narrow", "sleep", "inf")
			pod.Annotations = map[string]string{kube.AnnotationTrialQuota: "20"}
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			return err
		},
		"quota of a trial, through status": func() error {
			_, err := pods.Patch(ctx, "victim", types.MergePatchType, kube.AnnotationPatch(kube.AnnotationTrialQuota, "20"), metav1.PatchOptions{}, "status")
			return err
		},
		"agent, another node": func() error {
			_, err := agent.CoreV1().Nodes().Patch(ctx, other, types.MergePatchType, kube.AnnotationPatch(kube.AnnotationInventory, "{}"), metav1.PatchOptions{})
			return err
		},
		"agent, another annotation": func() error {
			_, err := agent.CoreV1().Nodes().Patch(ctx, a.Nodes[0].Name, types.MergePatchType, kube.AnnotationPatch("x", "y"), metav1.PatchOptions{})
			return err
		},
		"agent, a label of a pod": func() error {
			_, err := agent.CoreV1().Pods("default").Patch(ctx, "victim", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		},
		"agent, a version of a user's pod": func() error {
			_, err := agent.CoreV1().Pods("default").Patch(ctx, "victim", types.MergePatchType, kube.AnnotationPatch("gshare.dev/version", "v1.0.0"), metav1.PatchOptions{})
			return err
		},
		"residency": func() error {
			return annotate(pods, kube.AnnotationResidency, `{"v":1,"residency":{"seq":1,"level":"Shared"}}`)
		},
		"residency, empty":  func() error { return annotate(pods, kube.AnnotationResidency, "") },
		"quota of a trial":  func() error { return annotate(pods, kube.AnnotationTrialQuota, "20") },
		"residency reached": func() error { return annotate(pods, kube.AnnotationResidencyReached, "") },
		"create with a residency": func() error {
			pod := cluster.Pod("shared", "sleep", "inf")
			pod.Annotations = map[string]string{kube.AnnotationResidency: `{"v":1,"residency":{"seq":1,"level":"Shared"}}`}
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			return err
		},
		"agent, residency that is wanted": func() error {
			return annotate(agent.CoreV1().Pods("default"), kube.AnnotationResidency, "")
		},
		"agent of another node, residency reached": func() error {
			return annotate(stranger.CoreV1().Pods("default"), kube.AnnotationResidencyReached, "")
		},
		"agent, status of another node": func() error {
			_, err := agent.CoreV1().Nodes().Patch(ctx, other, types.MergePatchType, []byte(`{"status":{"capacity":{"gshare/mem":"1"}}}`), metav1.PatchOptions{}, "status")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := try()
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Fatalf("%v, want a refusal by policy", err)
			}
			t.Log(err)
		})
	}
}

// testForged removes the admission policies and checks that the agent does not honour forged placements either.
func testForged(ctx context.Context, t *testing.T, a *agents) {
	bindings := a.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for _, name := range []string{"gshare-placement", "gshare-binding"} {
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	node := a.Nodes[0]
	a.create(ctx, t, on(ask(cluster.Pod("honest", "sleep", "inf"), 60, 70, 8192), node))
	honest := a.runsAsPlaced(ctx, t, "honest")

	// A copy of another pod's placement. The pod can be created as soon as the policy is no longer in force.
	copied := ask(cluster.Pod("copied", "sleep", "inf"), 60, 70, 8192)
	copied.Spec.NodeName = node.Name
	copied.Annotations = map[string]string{kube.AnnotationPlacement: honest.Annotations[kube.AnnotationPlacement]}
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := a.Client().CoreV1().Pods("default").Create(ctx, copied, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("event: %s", a.waitEvent(ctx, t, "copied", "GPUPlacementForged"))

	// A placement invented for one's own pod, on resources that another pod holds.
	own := ask(cluster.Pod("own", "sleep", "inf"), 60, 70, 8192)
	own.Spec.NodeName = node.Name
	a.create(ctx, t, own)
	pod, err := a.Client().CoreV1().Pods("default").Get(ctx, "own", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(honest.Annotations[kube.AnnotationPlacement], string(honest.UID), string(pod.UID))
	if _, err := a.Client().CoreV1().Pods("default").Patch(ctx, "own", types.MergePatchType, kube.AnnotationPatch(kube.AnnotationPlacement, text), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Logf("event: %s", a.waitEvent(ctx, t, "own", "GPUShareDoesNotFit"))

	// Editing a placement after it was granted changes nothing for the running container.
	larger := strings.Replace(honest.Annotations[kube.AnnotationPlacement], `"quota":700`, `"quota":900`, 1)
	if _, err := a.Client().CoreV1().Pods("default").Patch(ctx, "honest", types.MergePatchType, kube.AnnotationPatch(kube.AnnotationPlacement, larger), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.checkInside(ctx, honest); err != nil {
		t.Error(err)
	}
	grants, err := a.grantsOn(node)
	if err != nil || len(grants) != 1 || grants[0].Name != "honest" {
		t.Errorf("granted: %+v, %v; want the honest pod's", grants, err)
	}
}
