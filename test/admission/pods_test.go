package admission_test

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// change modifies a pod.
type change func(*v1.Pod)

// pod returns a pod that requests 24 % of a GPU's SMs and 8 GiB, with the changes applied.
func pod(changes ...change) *v1.Pod {
	p := plain(limits("sm=24", "mem=8192"))
	for _, c := range changes {
		c(p)
	}
	return p
}

// plain returns a pod without a share, with the changes applied.
func plain(changes ...change) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Annotations: map[string]string{}},
		Spec:       v1.PodSpec{Containers: []v1.Container{container("main")}},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

func container(name string, written ...string) v1.Container {
	c := v1.Container{Name: name, Image: "image", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}
	set(c.Resources.Limits, written)
	return c
}

// set sets resources written as "sm=24", and removes those written as "sm=". Names without a slash, except cpu, are
// gshare's.
func set(list v1.ResourceList, written []string) {
	for _, w := range written {
		name, value, _ := strings.Cut(w, "=")
		if !strings.Contains(name, "/") && name != "cpu" {
			name = "gshare/" + name
		}
		if delete(list, v1.ResourceName(name)); value != "" {
			list[v1.ResourceName(name)] = resource.MustParse(value)
		}
	}
}

// limits changes the limits of the first container.
func limits(written ...string) change {
	return func(p *v1.Pod) { set(p.Spec.Containers[0].Resources.Limits, written) }
}

// says sets one of gshare's annotations.
func says(name, value string) change {
	return func(p *v1.Pod) { p.Annotations["gshare.dev/"+name] = value }
}

func env(name string) change {
	return func(p *v1.Pod) {
		c := &p.Spec.Containers[len(p.Spec.Containers)-1]
		c.Env = append(c.Env, v1.EnvVar{Name: name, Value: "x"})
	}
}

func another(c v1.Container) change {
	return func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, c) }
}

func initially(c v1.Container) change {
	return func(p *v1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, c) }
}

func sidecar(c v1.Container) change {
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return initially(c)
}

func hostPath(path string) change {
	return func(p *v1.Pod) {
		source := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "host", VolumeSource: source})
	}
}

func hostPID(p *v1.Pod) { p.Spec.HostPID = true }
func hostIPC(p *v1.Pod) { p.Spec.HostIPC = true }

func privileged(c v1.Container) v1.Container {
	c.SecurityContext = &v1.SecurityContext{Privileged: new(true)}
	return c
}

func capable(c v1.Container, capability v1.Capability) v1.Container {
	c.SecurityContext = &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{capability}}}
	return c
}

// mount mounts an empty volume at a path in the last container.
func mount(path string) change {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		c := &p.Spec.Containers[len(p.Spec.Containers)-1]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "empty", MountPath: path})
	}
}

// lastMessage sets the path of the termination message of the first container.
func lastMessage(path string) change {
	return func(p *v1.Pod) { p.Spec.Containers[0].TerminationMessagePath = path }
}
