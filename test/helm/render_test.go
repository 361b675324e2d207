package helm_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

const chart = "manifests/chart"

// render returns the objects that the chart renders with the values.
func render(t *testing.T, values ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := helm(t, "", append([]string{"template", "gshare", chart, "--kube-version", "v1.37.1"}, values...)...)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// overlays lists kustomize folders, and the Helm values that must render the same objects.
var overlays = map[string]struct{ folders, values []string }{
	"as it is": {[]string{"manifests"}, nil},
	"kind": {[]string{"manifests/overlays/kind"}, []string{
		"--set-file", `config.node\.yaml=manifests/overlays/kind/node.yaml`,
		"--set-file", `config.devices\.yaml=manifests/overlays/kind/devices.yaml`,
	}},
	"a cluster of one's own": {[]string{"manifests/overlays/example"}, []string{
		"--set", "images.scheduler=registry.example/gshare-scheduler:v0.1.0", "--set", "images.node=registry.example/gshare-node:v0.1.0",
		"--set", "runtimeClassName=nvidia", "--set-file", `config.node\.yaml=manifests/overlays/example/node.yaml`,
	}},
	"with the page":   {[]string{"test/install/testdata/web"}, []string{"--set", "web=true"}},
	"with serving":    {[]string{"manifests/overlays/serving"}, []string{"--set", "serving.enabled=true"}},
	"with claims":     {[]string{"manifests", "manifests/claims"}, []string{"--set", "claims=true"}},
	"with monitoring": {[]string{"manifests", "manifests/monitoring"}, []string{"--set", "monitoring=true"}},
	"older kubelets":  {[]string{"manifests", "manifests/older"}, []string{"--set", "olderKubelets=true"}},
	"1.36":            {[]string{"manifests", "manifests/older"}, []string{"--kube-version", "v1.36.3"}},
	"1.36, PodsAPI":   {[]string{"manifests"}, []string{"--kube-version", "v1.36.3-gke.100", "--set", "olderKubelets=false"}},
	"1.35":            {[]string{"test/install/testdata/kubernetes-1.35"}, []string{"--kube-version", "v1.35.8"}},
	"1.35, v1beta1": {[]string{"test/install/testdata/kubernetes-1.35-v1beta1"}, []string{
		"--kube-version", "v1.35.8", "--api-versions", "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"}},
	"1.35, v1beta1 by its value": {[]string{"test/install/testdata/kubernetes-1.35-v1beta1"}, []string{"--kube-version", "v1.35.8", "--set", "policies.defaults=v1beta1"}},
}

// hashed matches the name of the agent's configuration. Its suffix depends on the content; Helm and kustomize use different
// hashes.
var hashed = regexp.MustCompile(`gshare-node-config-[a-z0-9]{10}`)

// told returns the objects by their keys, with the hash suffixes removed.
func told(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var same any
		if err := json.Unmarshal(hashed.ReplaceAll(text, []byte("gshare-node-config")), &same); err != nil {
			t.Fatal(err)
		}
		all[hashed.ReplaceAllString(manifest.Key(o), "gshare-node-config")] = same
	}
	return all
}

// keepOnDelete is the annotation by which Helm leaves an object in the cluster that is no longer in the release.
const keepOnDelete = "helm.sh/resource-policy"

// TestOverlays: the chart renders exactly the objects that kustomize builds, with CustomResourceDefinitions that Helm keeps.
func TestOverlays(t *testing.T) {
	for name, test := range overlays {
		var want []*unstructured.Unstructured
		for _, folder := range test.folders {
			objects, err := manifest.Build(root, folder)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, objects...)
		}
		for _, o := range want {
			if o.GetKind() == "CustomResourceDefinition" {
				annotations := o.GetAnnotations() // not nil: controller-gen writes its version
				annotations[keepOnDelete] = "keep"
				o.SetAnnotations(annotations)
			}
		}
		if diff := cmp.Diff(told(t, want), told(t, render(t, test.values...))); diff != "" {
			t.Errorf("%s (-kustomize +helm):\n%s", name, diff)
		}
	}
}

// TestRolls: the agents' pod template changes if and only if their configuration changes.
func TestRolls(t *testing.T) {
	name := func(values ...string) string {
		for _, o := range render(t, values...) {
			if o.GetKind() == "ConfigMap" && hashed.MatchString(o.GetName()) {
				return o.GetName()
			}
		}
		t.Fatal("no configuration")
		return ""
	}
	if a, b := name(), name("--set", "runtimeClassName=nvidia"); a != b {
		t.Errorf("the same configuration is %s and %s", a, b)
	}
	if a, b := name(), name("--set-file", `config.node\.yaml=manifests/overlays/example/node.yaml`); a == b {
		t.Errorf("two configurations are %s", a)
	}
}

// TestValues: each value changes what it is documented to change, and unknown values are errors.
func TestValues(t *testing.T) {
	all := len(render(t))
	if n := len(render(t, "--set", "policies.slo=false")); n != all-2 {
		t.Errorf("without the policy of slo: %d objects of %d", n, all)
	}
	for _, o := range render(t, "--set", "nodeSelector.pool=gpu") {
		if o.GetKind() != "DaemonSet" {
			continue
		}
		got, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "spec", "nodeSelector")
		if diff := cmp.Diff(map[string]string{"gshare.dev/gpus": "true", "pool": "gpu"}, got); diff != "" || err != nil {
			t.Errorf("the agents' nodes: %v %s", err, diff)
		}
	}
	for _, wrong := range []string{"image.node=x", "policies.slo=perhaps", "config.node=1", "nodeSelektor.a=b", "serving.on=true", "images.gateways=x",
		"policies.defaults=v1alpha1", "olderKubelets=perhaps", "featureGates.Swop=true", "featureGates.Swap=perhaps", "featureGates.AllAlpha=true"} {
		if _, err := helm(t, "", "template", "gshare", chart, "--kube-version", "v1.37.1", "--set", wrong); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
	if _, err := helm(t, "", "template", "gshare", chart, "--kube-version", "v1.34.9"); err == nil || !strings.Contains(err.Error(), "kubeVersion") {
		t.Errorf("an old cluster: %v", err)
	}
}

// TestFeatureGates: all programs that have the flag get the gates, and none without the value.
func TestFeatureGates(t *testing.T) {
	for name, test := range map[string]struct {
		values []string
		want   map[string]string
	}{
		"none": {nil, map[string]string{}},
		"two": {[]string{"--set", "featureGates.Swap=true,featureGates.Parking=false"}, map[string]string{
			"agent": "--feature-gates=Parking=false,Swap=true", "scheduler": "--feature-gates=Parking=false,Swap=true",
			"controller": "--feature-gates=Parking=false,Swap=true", "gateway": "--feature-gates=Parking=false,Swap=true",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, o := range render(t, append([]string{"--set", "serving.enabled=true"}, test.values...)...) {
				containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range containers {
					args, _, err := unstructured.NestedStringSlice(c.(map[string]any), "args")
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range args {
						if strings.HasPrefix(a, "--feature-gates") {
							got[c.(map[string]any)["name"].(string)] += a
						}
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLint: neither helm lint nor the checks of the manifests find anything.
func TestLint(t *testing.T) {
	if _, err := helm(t, "", "lint", "--strict", chart, "--kube-version", "v1.37.1"); err != nil {
		t.Error(err)
	}
	pods := 0
	for _, o := range render(t, "--set", "web=true", "--set", "monitoring=true") {
		found, err := manifest.Lint(o)
		if err != nil || len(found) > 0 {
			t.Errorf("%s: %v %q", manifest.Key(o), err, found)
		}
		if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
			pods++
		}
	}
	if pods != 3 {
		t.Errorf("%d pods", pods)
	}
}
