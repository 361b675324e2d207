package doctor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// defaultsVersion returns the newest version in which the API server serves mutating admission policies: v1 from Kubernetes 1.36, v1beta1 on
// 1.35 if that is turned on, "" if none.
func (e *examination) defaultsVersion() (string, error) {
	for _, version := range []string{"v1", "v1beta1"} {
		list, err := e.client.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/" + version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read what the API server serves: %w", err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == mutating }) {
			return version, nil
		}
	}
	return "", nil
}

// checkDefaults checks that a policy sets the fields that pods with shares leave out. It only warns if the API server serves no such policies:
// pods then have to set every field themselves, and gshare-share refuses those that do not.
func (e *examination) checkDefaults(version string, names map[string][]string) {
	fix := applyAll
	switch version {
	case "":
		e.addFinding(admission, "", mutating, Warning,
			"not served: nothing fills in gshare/vgpu, gshare/sm-time, gshare/mem and schedulerName; gshare-share refuses pods without them",
			"write them in pods, or turn on the feature gate "+mutating+" and v1beta1 of it in the API server, and use manifests/older/v1beta1")
		return
	case "v1beta1":
		fix = "kubectl apply -k an overlay with the component manifests/older/v1beta1"
		on, known := gateInMetrics(serverMetrics(e.ctx, e.client.Discovery()))
		if !known {
			e.addFinding(admission, "", "gate", Unknown, "v1beta1 of "+mutating+" is served, but whether its feature gate is on cannot be read: if it is off, policies do nothing",
				"run doctor with permission to get /metrics of the API server, or see whether kube-apiserver has --feature-gates="+mutating+"=true")
		} else if !on {
			e.addFinding(admission, "", mutating, Failed, "v1beta1 is served, but the API server's feature gate "+mutating+" is off: policies do nothing",
				"start kube-apiserver with --feature-gates="+mutating+"=true as well, or use the component manifests/older/nodefaults")
			return
		}
	}
	for _, kind := range []string{mutating, mutating + binding} {
		e.checkInstalled(kind, version, names[kind], fix)
	}
}

// serverMetrics returns the API server's metrics, or nothing if they cannot be read.
func serverMetrics(ctx context.Context, api discovery.DiscoveryInterface) []byte {
	client := api.RESTClient()
	if client == nil { // a fake one
		return nil
	}
	metrics, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil // for example, permission is denied
	}
	return metrics
}

// gateInMetrics returns whether the feature gate of mutating admission policies is on, and whether the API server's metrics say so at all.
func gateInMetrics(metrics []byte) (on, known bool) {
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "kubernetes_feature_enabled{") && strings.Contains(line, `name="`+mutating+`"`) {
			return strings.HasSuffix(line, " 1"), true
		}
	}
	return false, false
}
