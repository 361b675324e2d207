package kube

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// podOf makes the pod that the tests place: default/web with the UID "uid-1".
func podOf(annotations map[string]string, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1", Annotations: annotations},
		Spec:       v1.PodSpec{Containers: containers},
	}
}

// container makes a container with limits such as "sm=24", of resources under gshare/.
func container(name string, limits ...string) v1.Container {
	list := v1.ResourceList{}
	for _, limit := range limits {
		short, value, _ := strings.Cut(limit, "=")
		list[v1.ResourceName(ResourcePrefix+short)] = resource.MustParse(value)
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: list}}
}

func sidecar(c v1.Container) v1.Container {
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

func withInit(pod *v1.Pod, init ...v1.Container) *v1.Pod {
	pod.Spec.InitContainers = init
	return pod
}

func shareOf(sm, smLimit, quota, quotaLimit share.PerMille, memory share.Bytes) share.Share {
	return share.Share{SMRequest: sm, SMLimit: smLimit, QuotaRequest: quota, QuotaLimit: quotaLimit, Memory: memory * share.MiB}
}
