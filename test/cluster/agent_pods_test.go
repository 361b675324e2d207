package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// ask adds a share to the container main of a pod, and returns the pod.
func ask(pod *v1.Pod, sm, quota, mem int64) *v1.Pod {
	pod.Spec.Containers[0].Resources.Limits = limits(sm, quota, mem)
	kube.Complete(pod)
	return pod
}

func limits(sm, quota, mem int64) v1.ResourceList {
	return v1.ResourceList{
		kube.ResourceSM: *resource.NewQuantity(sm, resource.DecimalSI), kube.ResourceQuota: *resource.NewQuantity(quota, resource.DecimalSI),
		kube.ResourceMemory: *resource.NewQuantity(mem, resource.DecimalSI),
	}
}

func on(pod *v1.Pod, node *cluster.Node) *v1.Pod {
	pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node.Name}
	return pod
}

func (a *agents) create(ctx context.Context, t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if _, err := a.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *agents) node(name string) *cluster.Node {
	for _, n := range a.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// checkInside checks inside each container of a pod that it has what its placement says.
func (a *agents) checkInside(ctx context.Context, pod *v1.Pod) error {
	placement, present, err := kube.PlacementOf(pod)
	if err != nil || !present {
		return fmt.Errorf("%s: placement: %v", pod.Name, err)
	}
	for _, c := range placement.Containers {
		out, err := a.node(pod.Spec.NodeName).Exec(ctx, pod, c.Name, "sh", "-c",
			"echo visible $CUDA_VISIBLE_DEVICES; echo percent $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; cat /run/gshare/policy /etc/ld.so.preload; "+
				"test -S /run/gshare/token.sock && echo socket; touch /run/gshare/x /etc/ld.so.preload 2>/dev/null || echo read-only; "+
				"test -s /usr/lib/gshare/libgshare.so && echo library")
		if err != nil {
			return err
		}
		var uuids, policy []string
		for i, v := range c.VGPUs {
			uuids = append(uuids, v.Slice)
			policy = append(policy, fmt.Sprintf("vgpu %d %s memory %d quota %d sm %d\n", i, v.Slice, v.Share.Memory, v.Share.QuotaRequest, v.Share.SMRequest))
		}
		want := fmt.Sprintf("visible %s\npercent %s\nversion 1\n%s/usr/lib/gshare/libgshare.so\nsocket\nread-only\nlibrary\n",
			strings.Join(uuids, ","), strings.TrimSuffix(c.VGPUs[0].Share.SMRequest.Percent(), "%"), strings.Join(policy, ""))
		if string(out) != want {
			return fmt.Errorf("%s/%s: inside is %q, want %q", pod.Name, c.Name, out, want)
		}
	}
	return nil
}
