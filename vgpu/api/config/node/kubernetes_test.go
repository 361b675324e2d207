package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKubernetes(t *testing.T) {
	c, err := Decode([]byte(head + "kubernetes:\n  nodeName: a\n  hook: /h.so\n  cordon: [GPU-0]\n  healthPeriod: 1s\n"))
	want := Kubernetes{
		NodeName: "a", Hook: "/h.so", Cordon: []string{"GPU-0"}, HealthPeriod: metav1.Duration{Duration: time.Second},
		DevicePlugins: "/var/lib/kubelet/device-plugins", PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		Plugins: "/var/lib/kubelet/plugins", PluginRegistry: "/var/lib/kubelet/plugins_registry",
		Pods: "/var/lib/kubelet/pods-api/pods-api.sock", CDI: "/var/run/cdi", Listen: "127.0.0.1:9477", ProxyListen: "127.0.0.1:9478",
		UnmanagedProcesses: ReportUnmanaged, WatchPeriod: metav1.Duration{Duration: 2 * time.Second}, HookGrace: metav1.Duration{Duration: 10 * time.Second},
	}
	if diff := cmp.Diff(want, c.Kubernetes); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestKubernetesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: x":                 "nodes",
		"cdi: run/cdi":             "kubernetes.cdi",
		"hook: lib.so":             "kubernetes.hook",
		"listen: '9477'":           "kubernetes.listen",
		"proxyListen: '9478'":      "kubernetes.proxyListen",
		"healthPeriod: 1ms":        "kubernetes.healthPeriod",
		"healthPeriod: 2h":         "kubernetes.healthPeriod",
		"cordon: GPU-0":            "cordon",
		"onDemandProfiles: [7]":    "onDemandProfiles",
		"onDemandProfiles: [big]":  "kubernetes.onDemandProfiles",
		"unmanagedProcesses: kill": "kubernetes.unmanagedProcesses",
		"unmanagedProcesses: off":  "kubernetes.unmanagedProcesses", // which YAML reads as false
		"watchPeriod: 1ms":         "kubernetes.watchPeriod",
		"watchPeriod: 2m":          "kubernetes.watchPeriod",
		"hookGrace: 100ms":         "kubernetes.hookGrace",
		"resourceClaims: [all]":    "kubernetes.resourceClaims: needs tenancy: mixed",
		"plugins: plugins":         "kubernetes.plugins",
		"pluginRegistry: x":        "kubernetes.pluginRegistry",
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := Decode([]byte(head + "kubernetes:\n  " + text + "\n")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want an error with %q", err, want)
			}
		})
	}
	if c, err := Decode([]byte(head + "tenancy: mixed\nkubernetes: {resourceClaims: [all]}\n")); err != nil || len(c.Kubernetes.ResourceClaims) != 1 {
		t.Errorf("resource claims of all namespaces: %+v, %v", c, err)
	}
	if _, err := Decode([]byte(head + "kubernetes: {listen: 'off'}\n")); err != nil {
		t.Errorf("listen off: %v", err)
	}
}
