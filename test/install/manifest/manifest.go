// Package manifest builds gshare's Kubernetes manifests, and checks them for anything that a careful administrator would not install.
package manifest

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Build returns the objects that kubectl kustomize prints for a folder of the repository.
func Build(root, folder string) ([]*unstructured.Unstructured, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, folder))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	text, err := objects.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return Parse(string(text))
}

// Parse decodes the objects of a YAML text. Empty documents are skipped.
func Parse(text string) (all []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
}

// Key returns the kind, namespace and name of an object, which identify it in a cluster.
func Key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// Lint returns what a careful administrator would object to in a Deployment, DaemonSet, Role or ClusterRole, and an error if the object has
// unknown fields. Only the DaemonSet gshare-node may be privileged.
func Lint(o *unstructured.Unstructured) ([]string, error) {
	switch o.GetKind() {
	case "Deployment":
		var d appsv1.Deployment
		err := convertTo(o, &d)
		return LintPod(&d.Spec.Template.Spec, false), err
	case "DaemonSet":
		var d appsv1.DaemonSet
		err := convertTo(o, &d)
		return LintPod(&d.Spec.Template.Spec, o.GetName() == "gshare-node"), err
	case "Role", "ClusterRole":
		var role rbac.ClusterRole // a Role has the same rules
		err := convertTo(o, &role)
		return excessiveRights(role.Rules), err
	}
	return nil, nil
}

func convertTo(o *unstructured.Unstructured, typed any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true)
}

func excessiveRights(rules []rbac.PolicyRule) (found []string) {
	for _, r := range rules {
		if finding := ExcessiveRight(r); finding != "" {
			found = append(found, finding)
		}
	}
	return found
}

// ExcessiveRight returns a right in the rule that no component of gshare should have: reading secrets, creating pods, or doing everything.
// It returns "" if there is none.
func ExcessiveRight(r rbac.PolicyRule) string {
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

// LintPod returns what a careful administrator would object to in a pod. privileged tells whether the pod may run as root and use the
// host's namespaces.
func LintPod(pod *v1.PodSpec, privileged bool) (found []string) {
	if pod.ServiceAccountName == "" {
		found = append(found, "no service account of its own")
	}
	if pod.PriorityClassName == "" {
		found = append(found, "no priority class")
	}
	for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		found = append(found, lintContainer(&c)...)
		if !privileged {
			found = append(found, lintRestricted(pod, &c)...)
		}
	}
	if !privileged && (pod.HostPID || pod.HostIPC || pod.HostNetwork) {
		found = append(found, "a namespace of the host")
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

// lintRestricted returns how the container violates the Pod Security standard "restricted".
func lintRestricted(pod *v1.PodSpec, c *v1.Container) (found []string) {
	if p := pod.SecurityContext; p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile == nil {
		found = append(found, "root, or no seccomp profile")
	}
	s := c.SecurityContext
	if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
		found = append(found, "more rights than it needs")
	}
	return found
}
