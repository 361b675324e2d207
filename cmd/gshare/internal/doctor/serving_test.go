package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// newServing returns an installation with serving, in which a function has a replica.
func newServing(t *testing.T) *installation {
	t.Helper()
	i := newInstallation()
	i.serves = true
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		i.served = append(i.served, o.DeepCopy())
	}
	i.served = append(i.served, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.APIVersion, "kind": api.Kind, "metadata": map[string]any{"namespace": "ml", "name": "resnet50"},
	}})
	holder, renewed := "gshare-controller-1_0", metav1.NewMicroTime(now.Add(-time.Second))
	i.leases = []*coordination.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "gshare-controller"},
		Spec: coordination.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}}}
	replica := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "resnet50-x-1", Labels: map[string]string{api.LabelFunction: "resnet50"},
		CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}, Spec: v1.PodSpec{NodeName: "n1"}}
	i.pods = []*v1.Pod{ownPod("gshare-controller-1", "gshare-controller", "n0", "x"), ownPod("gshare-gateway-1", "gshare-gateway", "n0", "x"),
		ownPod("gshare-gateway-2", "gshare-gateway", "n0", "x"), replica}
	return i
}

// condition has the function have a condition.
func condition(kind, reason, message string) func(*installation) {
	return func(i *installation) {
		i.served[len(i.served)-1].(*unstructured.Unstructured).Object["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": kind, "status": "True", "reason": reason, "message": message,
		}}}
	}
}

func TestServingIsWell(t *testing.T) {
	checks := map[string]bool{}
	for _, f := range newServing(t).examine(t) {
		if f.Status != OK || f.Fix != "" {
			t.Errorf("%+v", f)
		}
		if f.Component == serving {
			checks[f.Check] = true
		}
	}
	if len(checks) != 6 {
		t.Errorf("checks %v, want 6", checks)
	}
}

// TestNoServing: nothing is said of serving where it is not installed.
func TestNoServing(t *testing.T) {
	for _, f := range newInstallation().examine(t) {
		if f.Component == serving {
			t.Errorf("%+v", f)
		}
	}
}

// TestServingFindings: each thing that is wrong gives a finding of its own, with a fix; TestServingIsWell is the other half of every case.
func TestServingFindings(t *testing.T) {
	unready := func(name string) func(*installation) {
		return func(i *installation) {
			for _, pod := range i.pods {
				if strings.HasPrefix(pod.Name, name) {
					pod.Status.Conditions[0].Status = v1.ConditionFalse
				}
			}
		}
	}
	without := func(name string) func(*installation) {
		return func(i *installation) {
			i.pods = slices.DeleteFunc(i.pods, func(p *v1.Pod) bool { return strings.HasPrefix(p.Name, name) })
		}
	}
	waits := func(since time.Duration) func(*installation) {
		return func(i *installation) {
			i.pods[3].Spec.NodeName, i.pods[3].CreationTimestamp = "", metav1.NewTime(now.Add(-since))
		}
	}
	for name, c := range map[string]struct {
		breaks       func(*installation)
		check        string
		status       Status
		message, fix string
	}{
		"no kinds":           {func(i *installation) { i.serves = false }, "kinds", Failed, "does not serve serving.gshare.dev/v1alpha1", "add serving to your overlay or chart"},
		"a kind is missing":  {func(i *installation) { i.served = i.served[:1] }, "kinds", Failed, "fastpods.serving.gshare.dev is not defined", "add serving"},
		"an older kind":      {func(i *installation) { withoutField(i.served[0].(*unstructured.Unstructured), "batching") }, "kinds", Failed, "gpufunctions.serving.gshare.dev has no spec.batching", "another version"},
		"kinds unread":       {func(i *installation) { i.forbidden = "customresourcedefinitions" }, "kinds", Unknown, "forbidden", "permission to get"},
		"no controller":      {without("gshare-controller"), "controller", Failed, "0 of 0", "app=gshare-controller"},
		"controller unready": {unready("gshare-controller"), "controller", Failed, "0 of 1", "kubectl describe pods"},
		"lease is old":       {func(i *installation) { *i.leases[0].Spec.RenewTime = metav1.NewMicroTime(now.Add(-20 * time.Second)) }, "leader", Failed, "20s ago", "do not follow the load"},
		"lease was released": {func(i *installation) { *i.leases[0].Spec.HolderIdentity = "" }, "leader", Failed, "nobody holds", "controller's log"},
		"no lease":           {func(i *installation) { i.leases = nil }, "leader", Failed, "no lease gshare-controller", "controller's log"},
		"no gateway":         {without("gshare-gateway"), "gateways", Failed, "0 of 0", "app=gshare-gateway"},
		"one gateway":        {unready("gshare-gateway-2"), "gateways", Warning, "1 of 2", "kubectl describe pods"},
		"backing off":        {condition(api.ConditionBackingOff, "ReplicasFail", "ml/resnet50-1: exited"), "functions", Warning, "ml/resnet50 refuses requests, as all replicas fail: ml/resnet50-1: exited", "kubectl gshare slo -n ml resnet50"},
		"invalid":            {condition(api.ConditionReady, "Invalid", "spec.x: want 1"), "functions", Warning, "cannot be obeyed: spec.x: want 1", "correct"},
		"functions unread":   {func(i *installation) { i.forbidden = "gpufunctions" }, "functions", Unknown, "forbidden", "permission to list gpufunctions"},
		"pending":            {waits(3 * time.Minute), "replicas", Warning, "ml/resnet50-x-1 of function resnet50 has no node for 3m0s: waits for the scheduler", "kubectl gshare explain -n ml resnet50-x-1"},
		"pending for now":    {waits(time.Minute), "replicas", OK, "1 pods", ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := newServing(t)
			c.breaks(i)
			found := i.examine(t)
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Component == serving && f.Check == c.check && f.Status == c.status && strings.Contains(f.Message, c.message) && strings.Contains(f.Fix, c.fix)
			}) {
				t.Errorf("no such finding among %+v", found)
			}
			if Broken(found) != (c.status == Failed) {
				t.Errorf("broken: %v", Broken(found))
			}
		})
	}
}

// withoutField removes a field of the specification from a definition.
func withoutField(definition *unstructured.Unstructured, field string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", field)
	_ = unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions") // of a slice that was there
}
