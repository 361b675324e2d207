package install_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// podOf is the pod that an object makes; nil if none.
func podOf(t *testing.T, o *unstructured.Unstructured) *v1.PodSpec {
	t.Helper()
	switch o.GetKind() {
	case "Deployment":
		var d appsv1.Deployment
		into(t, o, &d)
		return &d.Spec.Template.Spec
	case "DaemonSet":
		var d appsv1.DaemonSet
		into(t, o, &d)
		return &d.Spec.Template.Spec
	}
	return nil
}

func into(t *testing.T, o *unstructured.Unstructured, typed any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		t.Fatalf("%s: %v", key(o), err)
	}
}

// lint lists what a careful administrator would not install. privileged says that the pod has to be.
func lint(pod *v1.PodSpec, privileged bool) (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if pod.ServiceAccountName == "" {
		say("no service account of its own")
	}
	if pod.PriorityClassName == "" {
		say("no priority class")
	}
	for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		found = append(found, lintContainer(&c)...)
		if !privileged {
			found = append(found, lintRights(pod, &c)...)
		}
	}
	if !privileged && (pod.HostPID || pod.HostIPC || pod.HostNetwork) {
		say("a namespace of the host")
	}
	return found
}

func lintContainer(c *v1.Container) (found []string) {
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

// lintRights is Pod Security "restricted".
func lintRights(pod *v1.PodSpec, c *v1.Container) (found []string) {
	if p := pod.SecurityContext; p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile == nil {
		found = append(found, "root, or no seccomp profile")
	}
	s := c.SecurityContext
	if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
		found = append(found, "more rights than it needs")
	}
	return found
}

func TestLint(t *testing.T) {
	pods := 0
	for _, o := range build(t, "manifests") {
		pod := podOf(t, o)
		if pod == nil {
			continue
		}
		pods++
		for _, finding := range lint(pod, o.GetName() == "gshare-node") {
			t.Errorf("%s: %s", key(o), finding)
		}
	}
	if pods != 2 {
		t.Errorf("%d pods", pods)
	}
	if found := lint(&v1.PodSpec{HostPID: true, Containers: []v1.Container{{Image: "x"}}}, false); len(found) != 11 {
		t.Errorf("a careless pod: %q", found)
	}
}

// TestRights: nobody may read secrets, make pods, or do everything.
func TestRights(t *testing.T) {
	rules := 0
	for _, o := range build(t, "manifests") {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		var role rbac.ClusterRole // a Role has the same rules
		into(t, o, &role)
		for _, r := range role.Rules {
			rules++
			if finding := tooMuch(r); finding != "" {
				t.Errorf("%s: %s", key(o), finding)
			}
		}
	}
	if rules < 5 || tooMuch(rbac.PolicyRule{Verbs: []string{"*"}}) == "" || tooMuch(rbac.PolicyRule{Resources: []string{"secrets"}}) == "" {
		t.Errorf("the check shows little: %d rules", rules)
	}
}

func tooMuch(r rbac.PolicyRule) string {
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
