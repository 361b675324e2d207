package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Reasons of the condition Ready beside those of fleet.Status.
const (
	reasonInvalid    = "Invalid"
	reasonUnprofiled = "Unprofiled"
)

// Reasons of other conditions.
const (
	reasonReplicasFail  = "ReplicasFail"
	reasonSharePolicy   = "SharePolicy"
	reasonForeignScaler = "ForeignScaler"
)

// backOff is why no replica of a function is started now; nothing if the text is empty.
type backOff struct{ why string }

// statusOf returns the status of an object, which before is that it has now. The last argument is why a policy keeps it from growing, if one does.
func statusOf(before api.GPUFunctionStatus, k known, s *fleet.Status, b backOff, overQuota string) api.GPUFunctionStatus {
	status := *before.DeepCopy()
	status.ObservedGeneration = k.generation
	ready := metav1.Condition{Type: api.ConditionReady, ObservedGeneration: k.generation, Status: metav1.ConditionFalse}
	switch {
	case k.invalid != "":
		ready.Reason, ready.Message = reasonInvalid, k.invalid
	case s == nil:
		return before
	default:
		ready.Reason, ready.Message = s.Reason, s.Message
		if s.Ready {
			ready.Status = metav1.ConditionTrue
		}
		if k.unprofiled && s.Ready {
			ready.Reason = reasonUnprofiled
			ready.Message = "has at most one replica more than its minimum, as its share or scaling.requestsPerSecond is not set"
		}
	}
	ready.Message = shortened(ready.Message, maxMessage)
	meta.SetStatusCondition(&status.Conditions, ready)
	for _, c := range []metav1.Condition{
		{Type: api.ConditionBackingOff, Reason: reasonReplicasFail, Message: b.why},
		{Type: api.ConditionQuotaExceeded, Reason: reasonSharePolicy, Message: overQuota},
		{Type: api.ConditionScalingConflict, Reason: reasonForeignScaler, Message: k.conflict},
	} {
		c.ObservedGeneration = k.generation
		setTrue(&status.Conditions, c)
	}
	if s == nil {
		return status
	}
	status.Residency = api.ResidencyCounts{Hot: int32(s.Hot), Shared: int32(s.Shared)}
	status.Replicas, status.ReadyReplicas = int32(s.Hot+s.Shared), int32(s.Replicas["ready"])
	status.Pods = fmt.Sprintf("%d+%d+%d", status.Residency.Hot, status.Residency.Shared, status.Residency.Warm)
	status.Share = shareText(s)
	status.Observed = api.Observed{RequestsPerSecond: rounded(s.Rate), Hit: percent(s.Hit)}
	if s.P99 > 0 {
		status.Observed.P99 = api.Duration(roundedDuration(s.P99).String())
	}
	return status
}

// setTrue sets a condition that is there only while it is True: while it has a message.
func setTrue(conditions *[]metav1.Condition, c metav1.Condition) {
	if c.Message == "" {
		meta.RemoveStatusCondition(conditions, c.Type)
		return
	}
	c.Status, c.Message = metav1.ConditionTrue, shortened(c.Message, maxMessage)
	meta.SetStatusCondition(conditions, c)
}

// shareText returns a share as kubectl get prints it: 24% x 40%-80%. It is empty for a function whose pods are somebody else's.
func shareText(s *fleet.Status) string {
	if s.Share == (share.Share{}) {
		return ""
	}
	text := fmt.Sprintf("%s x %s", s.Share.SMRequest.Percent(), s.Share.QuotaRequest.Percent())
	if s.Share.QuotaLimit > s.Share.QuotaRequest {
		text += "-" + s.Share.QuotaLimit.Percent()
	}
	return text
}

// rounded returns a number with two digits, so that the object is not written for each small change.
func rounded(x float64) string {
	if x == 0 || math.IsNaN(x) {
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-1)
	return strconv.FormatFloat(math.Round(x/unit)*unit, 'f', -1, 64)
}

func roundedDuration(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit)
}

func percent(part float64) string {
	if math.IsNaN(part) {
		return ""
	}
	return strconv.FormatFloat(math.Floor(part*1000)/10, 'f', -1, 64) + "%"
}

// observedPeriod is the least time between two writes of an object for changes of what requests saw alone.
const observedPeriod = 30 * time.Second

// urgency says when a status has to be written.
type urgency int

const (
	never urgency = iota
	later         // only what requests saw has changed, and it was not written for a while
	atOnce
)

// due returns when a status has to be written.
func due(before, now *api.GPUFunctionStatus, sinceWritten time.Duration) urgency {
	if equality.Semantic.DeepEqual(before, now) {
		return never
	}
	same := *now.DeepCopy()
	same.Observed = before.Observed
	switch {
	case !equality.Semantic.DeepEqual(before, &same):
		return atOnce
	case sinceWritten >= observedPeriod:
		return later
	}
	return never
}

// statusPeriod is the time between two looks at all functions.
const statusPeriod = time.Second

// maxWrites bounds the writes of a period.
const maxWrites = 100

// statusWriter writes the status of the objects of functions.
type statusWriter struct {
	client    client.Client
	fleet     *fleet.Fleet
	advisor   *fleet.Advisor
	functions *functions
	gateways  *Gateways
	log       *slog.Logger
	time      prometheus.Observer // of the looks, without the writes; may be nil
	written   map[gateway.FunctionName]time.Time
}

// Run writes what has changed, each second until ctx ends.
func (w *statusWriter) Run(ctx context.Context) {
	w.written = map[gateway.FunctionName]time.Time{}
	ticker := time.NewTicker(statusPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.writeAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// statusWrite is the status that an object is to have.
type statusWrite struct {
	name   gateway.FunctionName
	object *api.GPUFunction
	status api.GPUFunctionStatus
}

// writeAll writes the most urgent of what has changed. The rest follows in the next periods.
func (w *statusWriter) writeAll(ctx context.Context) {
	for _, one := range w.look(ctx) {
		w.written[one.name] = time.Now()
		changed := one.object.DeepCopy()
		changed.Status = one.status
		err := w.client.Status().Patch(ctx, changed, client.MergeFrom(one.object))
		if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			w.log.Warn("failed to write status", "function", one.name.String(), "error", err)
		}
	}
}

// look returns what to write in this period, the most urgent first.
func (w *statusWriter) look(ctx context.Context) []statusWrite {
	defer observe(w.time, time.Now())
	states := map[gateway.FunctionName]*fleet.Status{}
	for _, s := range append(w.fleet.Status(), w.advisor.Status()...) {
		states[s.Name] = &s
	}
	all := w.functions.all()
	maps.DeleteFunc(w.written, func(name gateway.FunctionName, _ time.Time) bool { _, there := all[name]; return !there })
	overQuota := w.functions.pods.quotas.overQuota()
	writes := map[urgency][]statusWrite{}
	for name, k := range all {
		object := &api.GPUFunction{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, object); err != nil {
			continue // it is gone, or the cache ends
		}
		now := statusOf(object.Status, k, states[name], w.gateways.backOff(name), overQuota[name])
		if u := due(&object.Status, &now, time.Since(w.written[name])); u != never && len(writes[u]) < maxWrites {
			writes[u] = append(writes[u], statusWrite{name, object, now})
		}
	}
	urgent := append(writes[atOnce], writes[later]...)
	return urgent[:min(maxWrites, len(urgent))]
}
