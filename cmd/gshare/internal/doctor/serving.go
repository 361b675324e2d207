package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/manifests"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// The label selectors of the pods of serving, and the lease of the active controller.
const (
	ControllerPods = "app=gshare-controller"
	GatewayPods    = "app=gshare-gateway"

	controllerLease = "gshare-controller"
)

// applyServing says how to install serving.
const applyServing = "add serving to your overlay or chart, or apply gshare-serving.yaml (docs/serving.md)"

var (
	definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	functionsResource   = api.GroupVersion.WithResource("gpufunctions")
)

// servingExamination is the part of an examination that covers serving: the components that serve functions.
type servingExamination struct{ *examination }

// check checks the kinds of serving, its controller and gateways, and the functions. It adds no findings if none of them is installed.
func (e servingExamination) check() {
	controllers, controllersErr := e.ownPods(ControllerPods)
	gateways, gatewaysErr := e.ownPods(GatewayPods)
	resources, err := e.client.Discovery().ServerResourcesForGroupVersion(api.APIVersion)
	installed := err == nil && resources != nil && len(resources.APIResources) > 0
	if !installed && len(controllers)+len(gateways) == 0 {
		return
	}
	if !installed {
		e.addFinding(serving, "", "kinds", Failed, "the API server does not serve "+api.APIVersion, applyServing)
		return
	}
	e.checkDefinitions()
	e.checkOwn("controller", ControllerPods, controllers, controllersErr)
	if controllersErr == nil && len(controllers) > 0 {
		e.checkLeaseOf(serving, controllerLease, maxControllerLeaseAge, "the numbers of pods do not follow the load; check the controller's log: kubectl logs -n "+cluster.Namespace+" -l "+ControllerPods)
	}
	e.checkOwn("gateways", GatewayPods, gateways, gatewaysErr)
	e.checkFunctions()
	e.checkReplicas()
}

// maxControllerLeaseAge is the time without a renewal after which no controller counts as leading. The leader renews its lease every half
// second, and another controller takes over after about six seconds.
const maxControllerLeaseAge = 15 * time.Second

func (e servingExamination) ownPods(selector string) ([]v1.Pod, error) {
	list, err := e.client.CoreV1().Pods(cluster.Namespace).List(e.ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// checkOwn checks the pods of one component of serving: it fails if none is ready, and warns if only some are.
func (e servingExamination) checkOwn(check, selector string, pods []v1.Pod, err error) {
	if err != nil {
		e.addFinding(serving, "", check, Unknown, err.Error(), "run doctor with permission to list pods in "+cluster.Namespace)
		return
	}
	ready := 0
	for i := range pods {
		if isReady(&pods[i]) {
			ready++
		}
	}
	status := OK
	switch {
	case ready == 0:
		status = Failed
	case ready < len(pods):
		status = Warning
	}
	e.addFinding(serving, "", check, status, fmt.Sprintf("%d of %d pods ready", ready, len(pods)),
		applyServing+"; kubectl describe pods -n "+cluster.Namespace+" -l "+selector)
}

// definitions returns the CustomResourceDefinitions of this version. It parses them once, because they are large.
var definitions = sync.OnceValues(func() (all []*unstructured.Unstructured, err error) {
	for _, text := range manifests.ServingDefinitions() {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
})

// checkDefinitions compares the installed CustomResourceDefinitions with those of this version. The API server silently drops fields that the
// installed ones do not define.
func (e servingExamination) checkDefinitions() {
	all, err := definitions()
	if err != nil {
		e.addFinding(serving, "", "kinds", Unknown, err.Error(), "")
	}
	for _, want := range all {
		name := want.GetName()
		got, err := e.objects.Resource(definitionsResource).Get(e.ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			e.addFinding(serving, "", "kinds", Failed, name+" is not defined", applyServing)
		case err != nil:
			e.addFinding(serving, "", "kinds", Unknown, err.Error(), "run doctor with permission to get customresourcedefinitions")
		default:
			missing := missingFields("", fieldsOf(want.Object), fieldsOf(got.Object))
			e.addCheck(serving, "", "kinds", len(missing) == 0, Failed, name+definitionText(missing),
				"the definition is of another version than this program: "+applyServing+", of one version with it")
		}
	}
}

func definitionText(missing []string) string {
	if len(missing) == 0 {
		return " is that of this version"
	}
	const most = 3
	text := " has no " + strings.Join(missing[:min(len(missing), most)], ", ")
	if more := len(missing) - most; more > 0 {
		text += fmt.Sprintf(" and %d others", more)
	}
	return text
}

// fieldsOf returns the schema of the first version of a definition.
func fieldsOf(definition map[string]any) map[string]any {
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	if len(versions) == 0 {
		return nil
	}
	version, _ := versions[0].(map[string]any)
	fields, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
	return fields
}

// missingFields returns the paths of the fields in the schema want that got does not have. It does not compare what is below spec.template, a
// pod template of Kubernetes.
func missingFields(path string, want, got map[string]any) (missing []string) {
	if path == ".spec.template" {
		return nil
	}
	wanted, _ := want["properties"].(map[string]any)
	has, _ := got["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		child, ok := has[name].(map[string]any)
		if !ok {
			missing = append(missing, strings.TrimPrefix(path+"."+name, "."))
			continue
		}
		below, _ := wanted[name].(map[string]any)
		missing = append(missing, missingFields(path+"."+name, below, child)...)
	}
	return missing
}

// checkFunctions reports the functions that serve nothing, because their specification is invalid or because all their replicas fail.
func (e servingExamination) checkFunctions() {
	list, err := e.objects.Resource(functionsResource).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.addFinding(serving, "", "functions", Unknown, err.Error(), "run doctor with permission to list gpufunctions")
		return
	}
	bad := 0
	for i := range list.Items {
		f := &api.GPUFunction{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, f); err != nil {
			e.addFinding(serving, "", "functions", Unknown, err.Error(), "")
			continue
		}
		name := f.Namespace + "/" + f.Name
		if back := meta.FindStatusCondition(f.Status.Conditions, api.ConditionBackingOff); back != nil && back.Status == metav1.ConditionTrue {
			bad++
			e.addFinding(serving, "", "functions", Warning, name+" refuses requests, as all replicas fail: "+back.Message, "kubectl gshare slo -n "+f.Namespace+" "+f.Name)
		} else if ready := meta.FindStatusCondition(f.Status.Conditions, api.ConditionReady); ready != nil && ready.Reason == "Invalid" {
			bad++
			e.addFinding(serving, "", "functions", Warning, name+" cannot be obeyed: "+ready.Message, "correct the field that the message names")
		}
	}
	if bad == 0 {
		e.addFinding(serving, "", "functions", OK, fmt.Sprintf("%d functions, none of which fails", len(list.Items)), "")
	}
}

// longPending is how long a replica may be without a node before it is reported.
const longPending = 2 * time.Minute

// checkReplicas reports pods of functions that have been without a node for long.
func (e servingExamination) checkReplicas() {
	list, err := e.client.CoreV1().Pods(metav1.NamespaceAll).List(e.ctx, metav1.ListOptions{LabelSelector: api.LabelFunction})
	if err != nil {
		e.addFinding(serving, "", "replicas", Unknown, err.Error(), "run doctor with permission to list pods")
		return
	}
	waiting := 0
	for i := range list.Items {
		pod := &list.Items[i]
		age := e.now.Sub(pod.CreationTimestamp.Time).Truncate(time.Second)
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || age < longPending {
			continue
		}
		waiting++
		e.addFinding(serving, "", "replicas", Warning, fmt.Sprintf("%s/%s of function %s has no node for %v: %s", pod.Namespace, pod.Name, pod.Labels[api.LabelFunction], age, api.WaitsFor(pod)),
			"kubectl gshare explain -n "+pod.Namespace+" "+pod.Name)
	}
	if waiting == 0 {
		e.addFinding(serving, "", "replicas", OK, fmt.Sprintf("%d pods of functions, none of which waits for a node for long", len(list.Items)), "")
	}
}
