package controller

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Reasons of the condition Ready, in addition to those of fleet.Status.
const (
	reasonInvalid    = "Invalid"
	reasonUnprofiled = "Unprofiled"
)

// Reasons of other conditions.
const (
	reasonReplicasFail  = "ReplicasFail"
	reasonSharePolicy   = "SharePolicy"
	reasonForeignScaler = "ForeignScaler"

	reasonServerKeepsMemory = "ServerKeepsMemory"
)

// backOff is the reason why no replica of a function is being started at present; there is none if the text is empty.
type backOff struct{ why string }

// statusOf returns the new status of an object whose present status is before. overQuota is why a policy keeps the function from growing, if one does.
func statusOf(before api.GPUFunctionStatus, k known, s *fleet.Status, b backOff, overQuota string) api.GPUFunctionStatus {
	status := *before.DeepCopy()
	status.ObservedGeneration, status.Profiled = k.generation, k.profiled.DeepCopy()
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
			if k.profile != "" {
				ready.Message = "has at most one replica more than its minimum, until the profile " + k.profile + " recommends a share"
			}
		}
	}
	ready.Message = shortened(ready.Message, maxMessage)
	meta.SetStatusCondition(&status.Conditions, ready)
	cannotPark := ""
	if s != nil {
		cannotPark = s.CannotPark
	}
	for _, c := range []metav1.Condition{
		{Type: api.ConditionCannotPark, Reason: reasonServerKeepsMemory, Message: cannotPark},
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
	status.Residency = api.ResidencyCounts{Hot: int32(s.Hot), Shared: int32(s.Shared), Warm: int32(s.Warm)}
	status.Replicas, status.ReadyReplicas = int32(s.Hot+s.Shared+s.Warm), int32(s.Replicas["ready"])
	status.Pods = fmt.Sprintf("%d+%d+%d", status.Residency.Hot, status.Residency.Shared, status.Residency.Warm)
	status.Share, status.Host = shareText(s), s.Host.Name
	status.Observed = api.Observed{RequestsPerSecond: rounded(s.Rate), Hit: percent(s.Hit)}
	if s.P99 > 0 {
		status.Observed.P99 = api.Duration(roundedDuration(s.P99).String())
	}
	return status
}

// setTrue sets a condition that exists only while it is True, or removes it if it has no message.
func setTrue(conditions *[]metav1.Condition, c metav1.Condition) {
	if c.Message == "" {
		meta.RemoveStatusCondition(conditions, c.Type)
		return
	}
	c.Status, c.Message = metav1.ConditionTrue, shortened(c.Message, maxMessage)
	meta.SetStatusCondition(conditions, c)
}

// shareText returns a share as kubectl get shows it: 24% x 40%-80%, 24%-48% x 100%, or 2 x 100% x 100% for two GPUs. It is empty for a function whose
// pods another autoscaler manages.
func shareText(s *fleet.Status) string {
	if s.Share == (share.Share{}) {
		return ""
	}
	text := ""
	if s.GPUs > 1 {
		text = fmt.Sprintf("%d x ", s.GPUs)
	}
	text += s.Share.SMRequest.Percent()
	if s.Share.SMLimit > s.Share.SMRequest {
		text += "-" + s.Share.SMLimit.Percent()
	}
	text += " x " + s.Share.QuotaRequest.Percent()
	if s.Share.QuotaLimit > s.Share.QuotaRequest {
		text += "-" + s.Share.QuotaLimit.Percent()
	}
	return text
}

// rounded returns a number rounded to two significant digits, so that the object is not written for each small change.
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

// observedPeriod is the least time between two writes of an object of which only the observed values (api.Observed) have changed.
const observedPeriod = 30 * time.Second

// urgency says how soon a status has to be written.
type urgency int

const (
	never urgency = iota
	later         // only observed values have changed, but by enough to be worth a write
	atOnce
)

// due returns how soon a changed status has to be written.
func due(before, now *api.GPUFunctionStatus) urgency {
	same := *now
	same.Observed = before.Observed
	switch {
	case !equality.Semantic.DeepEqual(before, &same):
		return atOnce
	case differs(before.Observed, now.Observed):
		return later
	}
	return never
}

// Changes of observed values that are worth a write: leastChange is a part of a number, leastPoints percentage points.
const (
	leastChange = 0.1
	leastPoints = 0.5
)

// differs reports whether observed values have changed by enough to be worth a write. The values of a function with a steady load vary by less.
func differs(before, now api.Observed) bool {
	from, to := pointsOf(before.Hit), pointsOf(now.Hit)
	return farApart(numberOf(before.RequestsPerSecond), numberOf(now.RequestsPerSecond)) || farApart(secondsOf(before.P99), secondsOf(now.P99)) ||
		(before.Hit == "") != (now.Hit == "") || !(math.Abs(from-to) < leastPoints)
}

// farApart reports whether two numbers differ by at least leastChange of the larger one, or one is not a number.
func farApart(a, b float64) bool {
	return a != b && !(math.Abs(a-b) < leastChange*max(math.Abs(a), math.Abs(b)))
}

// numberOf returns the number in a text of a status: 0 if it is empty, and NaN if somebody has replaced it by something else.
func numberOf(text string) float64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

func pointsOf(text string) float64 { return numberOf(strings.TrimSuffix(text, "%")) }

func secondsOf(text api.Duration) float64 {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return math.NaN()
	}
	return d.Seconds()
}
