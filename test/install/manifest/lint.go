package manifest

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Lint returns what is wrong with an object, and an error if it has fields that its kind has not. Agents have to be privileged.
func Lint(o *unstructured.Unstructured) ([]string, error) {
	switch o.GetKind() {
	case "Deployment":
		var d appsv1.Deployment
		err := into(o, &d)
		return Pod(&d.Spec.Template.Spec, false), err
	case "DaemonSet":
		var d appsv1.DaemonSet
		err := into(o, &d)
		return Pod(&d.Spec.Template.Spec, o.GetName() == "gshare-node"), err
	case "Role", "ClusterRole":
		var role rbac.ClusterRole // a Role has the same rules
		err := into(o, &role)
		return rights(role.Rules), err
	}
	return nil, nil
}

func into(o *unstructured.Unstructured, typed any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true)
}

func rights(rules []rbac.PolicyRule) (found []string) {
	for _, r := range rules {
		if finding := TooMuch(r); finding != "" {
			found = append(found, finding)
		}
	}
	return found
}

// TooMuch returns which right nobody should have: to read secrets, to make pods, or to do everything.
func TooMuch(r rbac.PolicyRule) string {
	for _, word := range slices.Concat(r.Verbs, r.Resources, r.APIGroups) {
		if word == "*" || word == "secrets" || word == "escalate" || word == "bind" || word == "impersonate" {
			return "may " + word
		}
	}
	if slices.Contains(r.Resources, "pods") && slices.Contains(r.Verbs, "create") {
		return "may make pods"
	}
	return ""
}

// Pod returns what is wrong with a pod. privileged says that it has to be.
func Pod(pod *v1.PodSpec, privileged bool) (found []string) {
	if pod.ServiceAccountName == "" {
		found = append(found, "no service account of its own")
	}
	if pod.PriorityClassName == "" {
		found = append(found, "no priority class")
	}
	for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		found = append(found, container(&c)...)
		if !privileged {
			found = append(found, restricted(pod, &c)...)
		}
	}
	if !privileged && (pod.HostPID || pod.HostIPC || pod.HostNetwork) {
		found = append(found, "a namespace of the host")
	}
	return found
}

func container(c *v1.Container) (found []string) {
	r := c.Resources
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if r.Requests.Name(name, "").IsZero() {
			found = append(found, "no request of "+string(name))
		}
	}
	if r.Limits.Memory().IsZero() {
		found = append(found, "no limit of memory")
	}
	if !r.Limits.Cpu().IsZero() {
		found = append(found, "a limit of cpu: it stops token server and scheduler for longer than a turn")
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil {
		found = append(found, "no probes")
	}
	if strings.HasSuffix(c.Image, ":latest") || !strings.Contains(c.Image, ":") {
		found = append(found, "an image without a version")
	}
	if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		found = append(found, "a root filesystem that can be written")
	}
	return found
}

// restricted is Pod Security "restricted".
func restricted(pod *v1.PodSpec, c *v1.Container) (found []string) {
	if p := pod.SecurityContext; p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile == nil {
		found = append(found, "root, or no seccomp profile")
	}
	s := c.SecurityContext
	if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
		found = append(found, "more rights than it needs")
	}
	return found
}
