package sharing

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)), newNodeInfo(gpuNode(t, "n2", 1)))
		p := newPlugin(t, h, 1)
		ctx, cancel := context.WithCancel(t.Context())
		h.informers.Start(ctx.Done())
		h.informers.WaitForCacheSync(ctx.Done())
		pod := gpuPod("a", 50, 50)
		pods := h.client.CoreV1().Pods(pod.Namespace)
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		state := reserve(t, p, pod, "n1")
		p.PostFilter(ctx, state, pod, nil)
		if p.ledger.Len() != 1 || len(p.podInfos.byUID) != 1 || p.breadths.of(pod.UID) != allNodes {
			t.Errorf("%d assumed, %d podInfos, breadth %v", p.ledger.Len(), len(p.podInfos.byUID), p.breadths.of(pod.UID))
		}
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if p.ledger.Len() != 0 || len(p.podInfos.byUID) != 0 || p.breadths.of(pod.UID) != bestNode {
			t.Errorf("deleted: %d assumed, %d podInfos, breadth %v", p.ledger.Len(), len(p.podInfos.byUID), p.breadths.of(pod.UID))
		}
		// The cycle continues with a snapshot that still has the pod.
		p.podInfos.get(pod)
		p.PostFilter(ctx, state, pod, nil)
		if p.ledger.Len() != 0 || len(p.podInfos.byUID) != 0 || p.breadths.of(pod.UID) != bestNode {
			t.Errorf("kept: %d assumed, %d podInfos, breadth %v", p.ledger.Len(), len(p.podInfos.byUID), p.breadths.of(pod.UID))
		}
		cancel()
		h.informers.Shutdown()
	})
}

func TestDossierIsReadOnceForEachVersion(t *testing.T) {
	h := newHandle()
	p := newPlugin(t, h, 0)
	pod := gpuPod("a", 50, 50)
	h.knows(pod)
	first := p.podInfos.get(pod)
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "n1"
	if p.podInfos.get(assumed) != first {
		t.Error("the assumed copy was read again")
	}
	changed := gpuPod("a", 60, 50)
	changed.ResourceVersion = "2"
	if p.podInfos.get(changed).key == first.key || len(p.podInfos.byUID) != 1 {
		t.Error("the next version was not read")
	}
	changed = gpuPod("a", 70, 50)
	changed.ResourceVersion = ""
	if p.podInfos.get(changed).key == first.key {
		t.Error("a pod without a version was taken for another")
	}
}

// A pod of the same name is another pod.
func TestLivesGoesByUID(t *testing.T) {
	h := newHandle()
	p := newPlugin(t, h, 0)
	known, reborn := gpuPod("a", 50, 50), gpuPod("a", 50, 50)
	reborn.UID = "uid-reborn"
	h.knows(reborn)
	for pod, want := range map[*v1.Pod]bool{known: false, reborn: true, gpuPod("b", 50, 50): false} {
		t.Run(string(pod.UID), func(t *testing.T) {
			if p.isCached(pod) != want {
				t.Errorf("lives(%s) = %v", pod.UID, !want)
			}
		})
	}
}
