package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
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

// overQuota returns what a policy has against a pod, and nothing if the error is another one.
func overQuota(err error) string {
	if refused := (*quotaError)(nil); errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}

// overQuotaSince is what a policy has against a pod, if the text is not empty, and since when it is that.
type overQuotaSince struct {
	text  string
	since time.Time
}

// overQuotaPeriod is the least time between two changes of what is said about one policy: what others hold changes often.
const overQuotaPeriod = 30 * time.Second

// waitForQuota has an instance tried again later that a policy does not let have a pod, and lets the owner of the function know.
func (p *Pods) waitForQuota(ctx context.Context, i *podInstance, why string) {
	p.mu.Lock()
	first := i.overQuota.text == ""
	if first || time.Since(i.overQuota.since) >= overQuotaPeriod {
		i.overQuota = overQuotaSince{why, time.Now()}
	}
	why = i.overQuota.text
	p.mu.Unlock()
	if first {
		p.recorder.Eventf(i.Function, nil, v1.EventTypeWarning, api.ConditionQuotaExceeded, "Create", "%s", shortened("Replica "+i.Name+" is not started: "+why, maxNote))
	}
	p.report(ctx, i, fleet.Event{Kind: fleet.Starting, Message: why})
	p.queue.AddAfter(i.Name, quotaPause)
}

// overQuota returns the functions that a policy keeps from starting a replica, and why.
func (p *Pods) overQuota() map[gateway.FunctionName]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[gateway.FunctionName]string{}
	for name, i := range p.instances {
		f := gateway.FunctionName{Namespace: i.Function.Namespace, Name: i.Function.Name}
		if text := i.overQuota.text; text != "" && !i.deleted && (found[f] == "" || "replica "+name+": "+text < found[f]) {
			found[f] = "replica " + name + ": " + text // of several always the same
		}
	}
	return found
}
