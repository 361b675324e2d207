package controller

import (
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/tenancy"
)

// quotaPause is the time after which a pod that a policy refused is tried again.
const quotaPause = 2 * time.Second

// quotaError is the error for a pod that is not created because a policy does not allow it.
type quotaError struct{ excess []tenancy.Excess }

// Error implements error.
func (e *quotaError) Error() string {
	var texts []string
	for _, one := range e.excess {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, "; ")
}

// OverQuota returns why a policy refuses a pod if err is such a refusal, or else an empty text.
func OverQuota(err error) string {
	if refused := (*quotaError)(nil); errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}

// refused is a replica that a policy keeps from starting.
type refused struct {
	function gateway.FunctionName
	why      string
	since    time.Time // when the reason last changed
}

// refusedPeriod is the least time between two changes of the reason given for a replica: what others hold changes often.
const refusedPeriod = 30 * time.Second

// refuse records that a policy keeps a replica from starting, with an event of the function the first time, and returns the reason to give.
func (q *Quotas) refuse(recorder events.EventRecorder, i *podInstance, why string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, again := q.refused[i.Name]
	if !again {
		recorder.Eventf(i.Function, nil, v1.EventTypeWarning, eventQuotaExceeded, "Create", "%s", shortened("Replica "+i.Name+" is not started: "+why, maxNote))
	} else if time.Since(before.since) < refusedPeriod {
		return before.why
	}
	q.refused[i.Name] = refused{gateway.FunctionName{Namespace: i.Function.Namespace, Name: i.Function.Name}, why, time.Now()}
	return why
}

// settle records that a replica has started or is no longer wanted.
func (q *Quotas) settle(instance string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.refused, instance)
}

// overQuota returns the functions that a policy keeps from starting a replica, each with the reason.
func (q *Quotas) overQuota() map[gateway.FunctionName]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := map[gateway.FunctionName]string{}
	for name, r := range q.refused {
		if text := "replica " + name + ": " + r.why; found[r.function] == "" || text < found[r.function] {
			found[r.function] = text // with several reasons, always the same one
		}
	}
	return found
}
