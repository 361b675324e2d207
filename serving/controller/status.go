package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// Reasons of the condition Ready beside those of fleet.Status.
const (
	reasonInvalid    = "Invalid"
	reasonUnprofiled = "Unprofiled"
)

// backOff is why no replica of a function is started now; nothing if the text is empty.
type backOff struct{ why string }

// statusOf returns the status of an object, which before is that it has now.
func statusOf(before api.GPUFunctionStatus, k known, s *fleet.Status, b backOff) api.GPUFunctionStatus {
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
	meta.SetStatusCondition(&status.Conditions, ready)
	setBackOff(&status.Conditions, k.generation, b)
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

func setBackOff(conditions *[]metav1.Condition, generation int64, b backOff) {
	if b.why == "" {
		meta.RemoveStatusCondition(conditions, api.ConditionBackingOff)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: api.ConditionBackingOff, Status: metav1.ConditionTrue, Reason: "ReplicasFail", Message: b.why, ObservedGeneration: generation,
	})
}

// shareText returns a share as kubectl get prints it: 24% x 40%-80%.
func shareText(s *fleet.Status) string {
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

// due reports whether a status has to be written: at once if anything but Observed has changed, and for that after a while.
func due(before, now *api.GPUFunctionStatus, sinceWritten time.Duration) bool {
	if equality.Semantic.DeepEqual(before, now) {
		return false
	}
	same := *now.DeepCopy()
	same.Observed = before.Observed
	return sinceWritten >= observedPeriod || !equality.Semantic.DeepEqual(before, &same)
}

// statusPeriod is the time between two looks at all functions.
const statusPeriod = time.Second

// maxWrites bounds the writes of a period.
const maxWrites = 100

// statusWriter writes the status of the objects of functions.
type statusWriter struct {
	client    client.Client
	fleet     *fleet.Fleet
	functions *functions
	gateways  *Gateways
	log       *slog.Logger
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

func (w *statusWriter) writeAll(ctx context.Context) {
	states := map[gateway.FunctionName]*fleet.Status{}
	for _, s := range w.fleet.Status() {
		states[s.Name] = &s
	}
	left := maxWrites
	for name, k := range w.functions.all() {
		if left == 0 {
			return // the others in the next period
		}
		wrote, err := w.write(ctx, name, k, states[name])
		if err != nil && ctx.Err() == nil {
			w.log.Warn("failed to write status", "function", name.String(), "error", err)
		}
		if wrote {
			left--
		}
	}
}

// write writes the status of a function if it is due.
func (w *statusWriter) write(ctx context.Context, name gateway.FunctionName, k known, s *fleet.Status) (wrote bool, err error) {
	object := &api.GPUFunction{}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, object); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	now := statusOf(object.Status, k, s, w.gateways.backOff(name))
	if !due(&object.Status, &now, time.Since(w.written[name])) {
		return false, nil
	}
	w.written[name] = time.Now()
	changed := object.DeepCopy()
	changed.Status = now
	return true, client.IgnoreNotFound(w.client.Status().Patch(ctx, changed, client.MergeFrom(object)))
}
