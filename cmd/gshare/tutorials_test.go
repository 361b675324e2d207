package main

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/test/install/document"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTutorials: the pods of an example run beside each other on one GPU of 80 GiB, as its text says.
func TestTutorials(t *testing.T) {
	examples := []struct {
		file, mark string
		copies     int // of the first pod, to be placed together
	}{
		{"docs/tutorials.md", "name: notebook", 1},
		{"docs/tutorials.md", "name: llama", 1},
		{"docs/tutorials.md", "name: triton", 2},
		{"docs/tutorials.md", "name: embeddings", 1},
		{"docs/migrate.md", "name: sliced", 4},
		{"docs/start-cluster.md", "name: first", 4},
	}
	for _, e := range examples {
		t.Run(e.mark, func(t *testing.T) {
			node := gpuOf80GiB()
			pods := podsOfExample(t, e.file, e.mark)
			for range e.copies - 1 {
				pods = append(pods, pods[0])
			}
			for i, pod := range pods {
				if refusal := place(t, node, pod); refusal != packing.Admitted {
					t.Fatalf("pod %d: %v", i, refusal)
				}
			}
		})
	}
	sliced, node := podsOfExample(t, "docs/migrate.md", "name: sliced")[0], gpuOf80GiB()
	for i := range 5 {
		if refusal := place(t, node, sliced); (refusal == packing.Admitted) != (i < 4) {
			t.Errorf("of five replicas, number %d: %v", i+1, refusal)
		}
	}
}

func gpuOf80GiB() *packing.Node {
	gpu := packing.Slice{
		ID: "GPU-0", Device: "GPU-0", Model: "A100", SMs: 108, Memory: 80 << 30, Healthy: true, MaxShares: kube.DefaultMaxShares,
		Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic}, Reserve: kube.DefaultReserve,
	}
	return packing.NewNode("n1", []packing.Slice{gpu}, 1<<20, 1<<40)
}

// place takes a pod onto the node, if it fits.
func place(t *testing.T, node *packing.Node, pod *v1.Pod) packing.Refusal {
	t.Helper()
	request, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	asking := &packing.Pod{Tenant: "default", Request: request}
	plan, _, refusal := packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}}}.Place(node, asking)
	if refusal == packing.Admitted {
		node.Take(packing.Slots, asking, plan)
	}
	return refusal
}

// podsOfExample returns the pods of the only example with a text in a page, as the admission policies complete them.
func podsOfExample(t *testing.T, file, mark string) (pods []*v1.Pod) {
	t.Helper()
	blocks, err := document.Blocks("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.File != file || b.Language != "yaml" || !strings.Contains(b.Text, mark) {
			continue
		}
		for text := range strings.SplitSeq(b.Text, "\n---\n") {
			pods = append(pods, podOf(t, text))
		}
	}
	if len(pods) == 0 {
		t.Fatalf("%s has no example with %q", file, mark)
	}
	return pods
}

// podOf returns the pod that a Pod, Deployment or Job makes.
func podOf(t *testing.T, text string) *v1.Pod {
	t.Helper()
	var deployment apps.Deployment
	var job batch.Job
	pod := &v1.Pod{}
	var err error
	switch {
	case strings.Contains(text, "kind: Deployment\n"):
		err = yaml.UnmarshalStrict([]byte(text), &deployment)
		pod.ObjectMeta, pod.Spec = deployment.Spec.Template.ObjectMeta, deployment.Spec.Template.Spec
	case strings.Contains(text, "kind: Job\n"):
		err = yaml.UnmarshalStrict([]byte(text), &job)
		pod.ObjectMeta, pod.Spec = job.Spec.Template.ObjectMeta, job.Spec.Template.Spec
	default:
		err = yaml.UnmarshalStrict([]byte(text), pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	kube.Complete(pod)
	return pod
}
