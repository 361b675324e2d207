// Package function reads the functions of a cluster, with their replicas and the decisions about them, and finds out why their requests are
// late. It only reads, with the user's permissions: from the API server, and the gateways' metrics through port-forwarding.
package function

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/verdict"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Resource is the resource of functions at the API server.
var Resource = api.GroupVersion.WithResource("gpufunctions")

// List returns the functions of a namespace, or of all if it is empty, in the order of their names.
func List(ctx context.Context, c *cluster.Connection, namespace string) ([]*api.GPUFunction, error) {
	list, err := c.Objects.Resource(Resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explained("list functions", err)
	}
	functions := []*api.GPUFunction{}
	for at := range list.Items {
		f, err := decoded(list.Items[at].Object)
		if err != nil {
			return nil, err
		}
		functions = append(functions, f)
	}
	slices.SortFunc(functions, func(a, b *api.GPUFunction) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return functions, nil
}

// Get returns the function with a name.
func Get(ctx context.Context, c *cluster.Connection, namespace, name string) (*api.GPUFunction, error) {
	object, err := c.Objects.Resource(Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, explained("get function "+namespace+"/"+name, err)
	}
	return decoded(object.Object)
}

// explained returns the error of a request for what. Where the API server says only that it found no such resource, the error says that serving
// is not installed.
func explained(what string, err error) error {
	if apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource") {
		return fmt.Errorf("%s: serving is not installed in this cluster (docs/serving.md)", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func decoded(object map[string]any) (*api.GPUFunction, error) {
	f := &api.GPUFunction{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, f); err != nil {
		return nil, fmt.Errorf("decode a function: %w", err)
	}
	return f, nil
}

// Read returns everything that is known about a function now, except its traffic.
func Read(ctx context.Context, c *cluster.Connection, f *api.GPUFunction, now time.Time) (*Facts, error) {
	pods, err := c.Client.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: api.LabelFunction + "=" + f.Name})
	if err != nil {
		return nil, fmt.Errorf("list pods of the function: %w", err)
	}
	events, err := c.Client.CoreV1().Events(f.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + api.Kind + ",involvedObject.name=" + f.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("list events of the function: %w", err)
	}
	facts := factsOf(f)
	for at := range pods.Items {
		facts.Replicas = append(facts.Replicas, replicaOf(&pods.Items[at], now))
	}
	facts.setRates(f, pods.Items)
	slices.SortFunc(facts.Replicas, func(a, b Replica) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Pod, b.Pod)) })
	for at := range events.Items {
		if e := &events.Items[at]; e.InvolvedObject.Name == f.Name && e.InvolvedObject.UID == f.UID {
			facts.Decisions = append(facts.Decisions, decisionOf(e, now))
		}
	}
	slices.SortStableFunc(facts.Decisions, func(a, b Decision) int { return b.Time.Compare(a.Time) })
	return facts, nil
}

// factsOf returns the facts that the function's object contains.
func factsOf(f *api.GPUFunction) *Facts {
	s, status := f.Spec.Scaling, &f.Status
	facts := &Facts{
		Name: f.Name, Namespace: f.Namespace, SLO: f.Spec.SLO.Latency.Value(), P99: status.Observed.P99.Value(), Hit: partOf(status.Observed.Hit),
		Unprofiled: f.Unprofiled(), Profile: f.Profile(), MinReplicas: s.MinReplicas, MaxReplicas: 10, Hot: int(status.Residency.Hot), RequestsPerSecond: s.RequestsPerSecond,
		Concurrency: 1, KeepShared: string(s.KeepShared),
	}
	facts.Rate, _ = strconv.ParseFloat(status.Observed.RequestsPerSecond, 64) // 0 without requests
	if s.MaxReplicas != nil {
		facts.MaxReplicas = *s.MaxReplicas
	}
	if s.Concurrency != nil {
		facts.Concurrency = *s.Concurrency
	}
	if ready := meta.FindStatusCondition(status.Conditions, api.ConditionReady); ready != nil {
		facts.Reason, facts.Message = ready.Reason, ready.Message
	}
	for kind, text := range map[string]*string{
		api.ConditionBackingOff: &facts.BackOff, api.ConditionQuotaExceeded: &facts.OverQuota, api.ConditionScalingConflict: &facts.Conflict,
		api.ConditionCannotPark: &facts.CannotPark,
	} {
		if c := meta.FindStatusCondition(status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			*text = cmp.Or(c.Message, c.Reason)
		}
	}
	return facts
}

// setRates sets the declared throughput of the replicas: that of the specification or, where it has none, of the profile. facts.Replicas must
// hold the replicas of pods, in the same order.
func (facts *Facts) setRates(f *api.GPUFunction, pods []v1.Pod) {
	complete, err := f.CompleteForCluster(share.Bytes(1024) * share.MiB) // any GPU memory will do: only functions with a share matter here
	if facts.Unprofiled || err != nil {
		return
	}
	facts.RequestsPerSecond = complete.Spec.Scaling.RequestsPerSecond
	variants := complete.Variants()
	if len(variants) == 1 {
		return
	}
	facts.Least = facts.RequestsPerSecond
	for _, v := range variants {
		rate, own := v.Spec.Scaling.RequestsPerSecond, v.Share()
		facts.Least = min(facts.Least, rate)
		for at := range pods {
			p, r := &pods[at], &facts.Replicas[at]
			if r.Residency == residency.Hot.String() && r.Phase != PhaseDraining && r.Phase != PhaseEnding && hasShare(p, own) {
				facts.Together += rate
			}
		}
	}
}

// hasShare reports whether a pod requests the SMs and the time of a share.
func hasShare(p *v1.Pod, s share.Share) bool {
	request, _, err := kube.RequestOf(p)
	return err == nil && len(request.Containers) > 0 &&
		request.Containers[0].Share.SMRequest == s.SMRequest && request.Containers[0].Share.QuotaRequest == s.QuotaRequest
}

// partOf parses a percentage such as 99.4% as a fraction. It returns NaN for an empty text.
func partOf(text string) float64 {
	value, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil {
		return math.NaN()
	}
	return value / 100
}

func replicaOf(pod *v1.Pod, now time.Time) Replica {
	r := Replica{Pod: pod.Name, Node: pod.Spec.NodeName, Age: now.Sub(pod.CreationTimestamp.Time), Residency: residency.Hot.String()}
	if wanted, err := residency.DecodeWanted(pod.Annotations[kube.AnnotationResidency]); err == nil {
		r.Residency = wanted.Level.String()
	}
	if p, err := kube.DecodePlacement(pod.Annotations[kube.AnnotationPlacement]); err == nil {
		for _, c := range p.Containers {
			for at, v := range c.VGPUs {
				if at > 0 {
					r.Slice += ", " + v.Slice
					continue
				}
				r.Slice, r.Share = v.Slice, verdict.ShareText(v.Share)
				if len(c.VGPUs) > 1 {
					r.Share = fmt.Sprintf("%d x %s", len(c.VGPUs), r.Share)
				}
			}
		}
	}
	_, ready := api.Address(pod)
	failure := api.Failure(pod)
	switch {
	case pod.DeletionTimestamp != nil || kube.Ended(pod):
		r.Phase = PhaseEnding
	case pod.Annotations[api.AnnotationDrain] != "":
		r.Phase = PhaseDraining
	case r.Residency == residency.Warm.String() && failure == "":
		r.Phase = PhaseParked
	case ready:
		r.Phase = PhaseReady
	case failure != "":
		r.Phase, r.Waits = PhaseFailing, failure
	case pod.Spec.NodeName == "":
		r.Phase, r.Waits = PhasePending, api.WaitsFor(pod)
	default:
		r.Phase, r.Waits = PhaseStarting, api.WaitsFor(pod)
	}
	return r
}

// decisionOf converts an event of a function. Warnings are decisions, too: they say what could not be done.
func decisionOf(e *v1.Event, now time.Time) Decision {
	d := Decision{Time: e.EventTime.Time, Text: e.Message, Count: 1, ColdStart: e.Reason == api.EventScaledFromZero}
	d.Up = e.Action == "Create" || e.Action == "Promote"
	if d.Time.IsZero() {
		d.Time = e.LastTimestamp.Time
	}
	if e.Series != nil {
		d.Time, d.Count = e.Series.LastObservedTime.Time, int(e.Series.Count)
	}
	if e.Type == v1.EventTypeWarning {
		d.Text = e.Reason + ": " + e.Message
	}
	d.Scaled = e.Reason == api.EventScaled || e.Reason == api.EventScaledFromZero
	d.Ago = now.Sub(d.Time)
	return d
}
