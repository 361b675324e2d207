package cluster_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// testResidency checks that the agent of a running pod's node applies the residency levels that gshare-controller's account writes, and
// reports them, with the admission policies in force.
func testResidency(ctx context.Context, t *testing.T, a *agents) {
	config := a.Config(access.Admin)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:gshare-system:gshare-controller", Groups: []string{"system:masters"},
	}
	controller, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	a.create(ctx, t, ask(cluster.Pod("instance", "sleep", "inf"), 60, 90, 512))
	a.runsAsPlaced(ctx, t, "instance")
	for seq, l := range []residency.Level{residency.Hot, residency.Shared, residency.Hot} {
		wanted := residency.Wanted{Seq: int64(seq) + 1, Level: l}
		text, err := wanted.Encode()
		if err != nil {
			t.Fatal(err)
		}
		patch := kube.AnnotationPatch(kube.AnnotationResidency, text)
		if _, err := controller.CoreV1().Pods("default").Patch(ctx, "instance", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = a.WaitPod(ctx, "instance", func(pod *v1.Pod) bool {
			_, reached, err := kube.ResidencyOf(pod)
			return err == nil && reached == residency.Reached{Seq: wanted.Seq, Level: l}
		})
		if err != nil {
			t.Fatalf("%+v is not reached: %v", wanted, err)
		}
	}
}
