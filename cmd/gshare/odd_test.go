package main

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// odd are changes to pods, each of which takes something away that most pods have, or adds what does not belong to the rest.
var odd = map[string]func(*v1.Pod){
	"no containers":            func(p *v1.Pod) { p.Spec.Containers = nil },
	"only an init container":   func(p *v1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil },
	"containers without all":   func(p *v1.Pod) { p.Spec.Containers = make([]v1.Container, len(p.Spec.Containers)) },
	"no status":                func(p *v1.Pod) { p.Status = v1.PodStatus{} },
	"an empty spec":            func(p *v1.Pod) { p.Spec = v1.PodSpec{} },
	"no containers, on a node": func(p *v1.Pod) { p.Spec = v1.PodSpec{NodeName: "n1"} },
	"running without statuses": func(p *v1.Pod) { p.Status = v1.PodStatus{Phase: v1.PodRunning} },
	"statuses of others": func(p *v1.Pod) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "other"}, {}}
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{}}
	},
	"being deleted, and nothing else": func(p *v1.Pod) {
		p.DeletionTimestamp, p.Spec, p.Status = new(metav1.Now()), v1.PodSpec{}, v1.PodStatus{}
	},
	"a claim without a name": func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{}}
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{}}
	},
	"claims, no containers": func(p *v1.Pod) {
		p.Spec.ResourceClaims, p.Spec.Containers = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}, nil
	},
	"gates and affinity without terms": func(p *v1.Pod) {
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{}}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{}}, PodAntiAffinity: &v1.PodAntiAffinity{}}
	},
	"no annotations or labels":     func(p *v1.Pod) { p.Annotations, p.Labels = nil, nil },
	"a placement of nothing":       annotated(kube.AnnotationPlacement, `{"version":1,"node":"n1","containers":[]}`),
	"a placement without vGPUs":    annotated(kube.AnnotationPlacement, `{"version":1,"node":"n1","containers":[{"name":"main","vgpus":[]}]}`),
	"a placement of null":          annotated(kube.AnnotationPlacement, `null`),
	"an enforcement status of {}":  annotated(kube.AnnotationEnforcementStatus, `{}`),
	"an enforcement status of [{}": annotated(kube.AnnotationEnforcementStatus, `{"containers":[{}]}`),
	"no owner that is known":       func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{}} },
}

// annotated returns a change that sets an annotation.
func annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

// TestOddPods: each command of a cluster answers where any one pod, or all of them, lack what most pods have.
func TestOddPods(t *testing.T) {
	for name, change := range odd {
		t.Run(name, func(t *testing.T) {
			a := servingCluster(t)
			a.daemonSets = make([]apps.DaemonSet, 1) // of no containers
			a.daemonSets[0].Spec.Template.Labels = map[string]string{"app": "gshare-node"}
			usual := slices.Clone(a.pods)
			kubeconfig := a.kubeconfig(t)
			for changed := range len(usual) + 1 {
				for i := range usual {
					usual[i].DeepCopyInto(&a.pods[i])
					if i == changed || changed == len(usual) {
						change(&a.pods[i])
					}
				}
				for _, command := range clusterLines() {
					if out, err := ask(t, kubeconfig, append(strings.Fields(command), "-o", "json")...); out == "" && err == nil {
						t.Errorf("%s: neither output nor an error", command)
					}
				}
			}
		})
	}
}
