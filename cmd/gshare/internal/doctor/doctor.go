// Package doctor checks what gshare needs of a cluster: the API server and the policies, the scheduler, and on each node the
// kubelet, the container runtime, the node agent and what it published. It asks the API server only, with the rights of the
// user, and says which checks those rights do not reach.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Status is how a check ended.
type Status string

// The ends of a check. Unknown is what may not be read.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Unknown Status = "unknown"
	Failed  Status = "failed"
)

// Finding is the result of one check.
type Finding struct {
	Component string `json:"component"`
	Node      string `json:"node,omitempty"`
	Check     string `json:"check"`
	Status    Status `json:"status"`
	Saw       string `json:"saw"`
	Fix       string `json:"fix,omitempty"`
}

// The components, in the order in which they are reported.
const (
	apiServer  = "api-server"
	admission  = "admission"
	scheduler  = "scheduler"
	agent      = "agent"
	kubelet    = "kubelet"
	containers = "runtime"
	gpus       = "gpus"
	pods       = "pods"
)

// Examine runs every check. now is compared with times that the cluster writes.
func Examine(ctx context.Context, client kubernetes.Interface, now time.Time) []Finding {
	e := &examination{ctx: ctx, client: client, now: now}
	e.apiServer()
	e.admission()
	e.scheduler()
	e.nodes()
	order := []string{apiServer, admission, scheduler, agent, kubelet, containers, gpus, pods}
	slices.SortStableFunc(e.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(slices.Index(order, a.Component), slices.Index(order, b.Component)))
	})
	return e.found
}

// Broken says that something gshare needs is missing.
func Broken(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Status == Failed })
}

type examination struct {
	ctx     context.Context
	client  kubernetes.Interface
	now     time.Time
	release *release // of the API server; nil where it did not say
	found   []Finding
}

// say records a finding; where all is well nobody needs the fix.
func (e *examination) say(component, node, check string, status Status, saw, fix string) {
	if status == OK {
		fix = ""
	}
	e.found = append(e.found, Finding{component, node, check, status, saw, fix})
}

// check records a finding that is ok, or else bad.
func (e *examination) check(component, node, check string, ok bool, bad Status, saw, fix string) {
	if ok {
		bad = OK
	}
	e.say(component, node, check, bad, saw, fix)
}
