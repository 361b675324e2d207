package controller

import (
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/tenancy"
)

// quotaPause is the time after which a pod is tried again that a policy did not allow.
const quotaPause = 2 * time.Second

// quotaError is why a pod is not created that a policy does not allow.
type quotaError struct{ excess []tenancy.Excess }

// Error implements error.
func (e *quotaError) Error() string {
	var texts []string
	for _, one := range e.excess {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, "; ")
}

// OverQuota returns what a policy has against a pod, and nothing if the error is another one.
func OverQuota(err error) string {
	if refused := (*quotaError)(nil); errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}

// refused is a replica that a policy does not let start.
type refused struct {
	function gateway.FunctionName
	why      string
	since    time.Time // since when that is why
}

// refusedPeriod is the least time between two changes of what is said about a replica: what others hold changes often.
const refusedPeriod = 30 * time.Second

// refuse notes that a policy does not let a replica start, lets the owner of the function know, and returns why.
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

// settle notes that a replica has started, or is not wanted any more.
func (q *Quotas) settle(instance string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.refused, instance)
}

// overQuota returns the functions that a policy keeps from starting a replica, and why.
func (q *Quotas) overQuota() map[gateway.FunctionName]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := map[gateway.FunctionName]string{}
	for name, r := range q.refused {
		if text := "replica " + name + ": " + r.why; found[r.function] == "" || text < found[r.function] {
			found[r.function] = text // of several always the same
		}
	}
	return found
}
