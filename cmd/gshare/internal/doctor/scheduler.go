package doctor

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Labels of gshare's own pods, and the lease of the scheduler that works.
const (
	SchedulerPods = "app=gshare-scheduler"
	AgentPods     = "app=gshare-node"

	schedulerLease = "gshare-scheduler"
)

// leaseLate is how old a lease may be; the scheduler renews it every two seconds, and gives up after ten.
const leaseLate = 30 * time.Second

func (e *examination) scheduler() {
	list, err := e.client.CoreV1().Pods(cluster.Namespace).List(e.ctx, metav1.ListOptions{LabelSelector: SchedulerPods})
	if err != nil {
		e.say(scheduler, "", "running", Unknown, err.Error(), "ask as somebody who may list pods in "+cluster.Namespace)
		return
	}
	ready := 0
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			ready++
		}
	}
	e.check(scheduler, "", "running", ready > 0, Failed, fmt.Sprintf("%d of %d pods ready", ready, len(list.Items)),
		"kubectl apply -k manifests; kubectl logs -n "+cluster.Namespace+" -l "+SchedulerPods)
	e.lease()
	e.profile()
}

// lease says which of the schedulers works.
func (e *examination) lease() {
	lease, err := e.client.CoordinationV1().Leases(cluster.Namespace).Get(e.ctx, schedulerLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		e.say(scheduler, "", "leader", Failed, "no lease "+schedulerLease, "the scheduler has never worked: look at its log")
	case err != nil:
		e.say(scheduler, "", "leader", Unknown, err.Error(), "ask as somebody who may get leases in "+cluster.Namespace)
	case lease.Spec.HolderIdentity == nil || lease.Spec.RenewTime == nil:
		e.say(scheduler, "", "leader", Failed, "nobody holds the lease", "look at the scheduler's log")
	default:
		age := e.now.Sub(lease.Spec.RenewTime.Time).Truncate(time.Second)
		e.check(scheduler, "", "leader", age < leaseLate, Failed, fmt.Sprintf("%s, renewed %v ago", *lease.Spec.HolderIdentity, max(age, 0)),
			"no scheduler works: look at its log")
	}
}

// profile says whether pods find the scheduler that the policies name.
func (e *examination) profile() {
	profiles, note := cluster.Profiles(e.ctx, e.client)
	if note != "" {
		e.say(scheduler, "", "profile", Unknown, note, "ask as somebody who may list configmaps in "+cluster.Namespace)
		return
	}
	var names []string
	there := false
	for _, p := range profiles {
		names = append(names, p.Name+" ("+p.Plugin+")")
		there = there || p.Name == kube.SchedulerName
	}
	e.check(scheduler, "", "profile", there, Failed, strings.Join(names, ", "),
		"give the configuration a profile "+kube.SchedulerName+": the policies set this schedulerName")
}

func isReady(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
