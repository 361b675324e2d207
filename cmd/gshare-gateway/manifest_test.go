package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/serving/identity"
)

// TestManifest reads manifests/serving/gateway.yaml as the API server does, and compares it with the flags.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("../../manifests/serving/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment apps.Deployment
	services := map[string]v1.Service{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		var service v1.Service
		into := map[string]any{
			"ServiceAccount": &v1.ServiceAccount{}, "ClusterRole": &rbac.ClusterRole{}, "ClusterRoleBinding": &rbac.ClusterRoleBinding{},
			"Deployment": &deployment, "Service": &service, "PodDisruptionBudget": &policy.PodDisruptionBudget{},
		}[kind.Kind]
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
		if kind.Kind == "Service" {
			services[service.Name] = service
		}
	}
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	cmd := command()
	if err := cmd.ParseFlags(container.Args); err != nil || container.Command[0] != cmd.Name() {
		t.Errorf("the container runs %s %s: %v", container.Command, container.Args, err)
	}
	grace, err := cmd.Flags().GetDuration("termination-grace")
	if err != nil || time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second < grace+lastReports {
		t.Errorf("the pod is killed after %d s, want it after the termination grace of %v", *pod.TerminationGracePeriodSeconds, grace)
	}
	var files []string
	for _, item := range pod.Volumes[0].Secret.Items {
		files = append(files, item.Path)
	}
	if want := []string{"tls.crt", "tls.key", "ca.crt"}; pod.Volumes[0].Secret.SecretName != identity.GatewaySecret || !slices.Equal(files, want) {
		t.Errorf("the files %v are mounted, want %v", files, want)
	}
	ports := map[string]int32{}
	for flag, name := range map[string]string{"listen": "http", "report": "report", "metrics": "metrics", "peers": "peers"} {
		for _, p := range container.Ports {
			ports[p.Name] = p.ContainerPort
			if address := cmd.Flags().Lookup(flag).Value.String(); p.Name == name && address != fmt.Sprint(":", p.ContainerPort) {
				t.Errorf("port %s is %d, want that of --%s=%s", name, p.ContainerPort, flag, address)
			}
		}
	}
	if len(ports) != 4 {
		t.Errorf("ports %v, want four", ports)
	}
	selector, err := labels.Parse(cmd.Flags().Lookup("peer-selector").Value.String())
	if err != nil || !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
		t.Errorf("gateways look for pods with %v, which have %v: %v", selector, deployment.Spec.Template.Labels, err)
	}
	environment := map[string]string{}
	for _, e := range container.Env {
		environment[e.Name] = e.Value
		if e.ValueFrom != nil {
			environment[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	if environment["POD_NAME"] != "metadata.name" || environment["POD_NAMESPACE"] != "metadata.namespace" {
		t.Errorf("environment %v", environment)
	}
	limit, ok := strings.CutSuffix(environment["GOMEMLIMIT"], "MiB")
	if mib, err := strconv.ParseInt(limit, 10, 64); !ok || err != nil || mib<<20 >= container.Resources.Limits.Memory().Value() {
		t.Errorf("GOMEMLIMIT %q: want less than the memory limit", environment["GOMEMLIMIT"])
	}
	for name, s := range services {
		if _, ok := ports[s.Spec.Ports[0].TargetPort.StrVal]; !ok || s.Spec.Selector["app"] != deployment.Spec.Template.Labels["app"] {
			t.Errorf("service %s leads to %v of pods with %v", name, s.Spec.Ports, s.Spec.Selector)
		}
	}
	if len(services) != 2 {
		t.Errorf("services %v, want two", services)
	}
}
