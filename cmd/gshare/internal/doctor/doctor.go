// Package doctor checks the installation of gshare in a cluster: the API server and the admission policies, the scheduler, the components that
// serve functions, and on each node the kubelet, the container runtime, the node agent and its inventory. It only reads from the API server,
// with the user's permissions; checks for which these do not suffice have the status unknown.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Status is the outcome of one of gshare doctor's checks.
type Status string

// The results of a check. Unknown means that its objects could not be read.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Unknown Status = "unknown"
	Failed  Status = "failed"
)

// Finding is the result of one of gshare doctor's checks, with advice on how to fix a problem.
type Finding struct {
	Component string `json:"component"`
	Node      string `json:"node,omitempty"`
	Check     string `json:"check"`
	Status    Status `json:"status"`
	Message   string `json:"message"`
	Fix       string `json:"fix,omitempty"`
}

// The components, in the order of the report.
const (
	apiServer  = "api-server"
	admission  = "admission"
	scheduler  = "scheduler"
	agent      = "agent"
	kubelet    = "kubelet"
	containers = "runtime"
	gpus       = "gpus"
	pods       = "pods"
	serving    = "serving"
)

// Examine runs all checks on a cluster and returns their findings sorted by node and component. now is compared with timestamps of the
// cluster, such as lease renewals.
func Examine(ctx context.Context, client kubernetes.Interface, objects dynamic.Interface, now time.Time) []Finding {
	e := &examination{ctx: ctx, client: client, objects: objects, now: now}
	e.checkAPIServer()
	e.checkAdmission()
	e.checkScheduler()
	servingExamination{e}.check()
	e.checkNodes()
	order := []string{apiServer, admission, scheduler, serving, agent, kubelet, containers, gpus, pods}
	slices.SortStableFunc(e.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(slices.Index(order, a.Component), slices.Index(order, b.Component)))
	})
	return e.found
}

// Broken reports whether any of the findings is a failed check.
func Broken(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Status == Failed })
}

// examination holds the clients and findings of one run of gshare doctor.
type examination struct {
	ctx     context.Context
	client  kubernetes.Interface
	objects dynamic.Interface // for kinds that client does not have
	now     time.Time
	release *release // of the API server; nil if unknown
	found   []Finding
}

// addFinding adds a finding. It drops the fix if the status is OK.
func (e *examination) addFinding(component, node, check string, status Status, message, fix string) {
	if status == OK {
		fix = ""
	}
	e.found = append(e.found, Finding{component, node, check, status, message, fix})
}

// addCheck adds a finding with the status OK if ok is true, or else the status bad.
func (e *examination) addCheck(component, node, check string, ok bool, bad Status, message, fix string) {
	if ok {
		bad = OK
	}
	e.addFinding(component, node, check, bad, message, fix)
}
