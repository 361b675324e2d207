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

// The label selectors of gshare's own pods, and the lease of the active scheduler.
const (
	SchedulerPods = "app=gshare-scheduler"
	AgentPods     = "app=gshare-node"

	schedulerLease = "gshare-scheduler"
)

// maxLeaseAge is the time without a renewal after which a leader lease counts as unused. A leading scheduler renews its lease every two seconds,
// and stops leading if it has failed to for ten.
const maxLeaseAge = 30 * time.Second

// checkScheduler checks that a scheduler pod is ready and holds the leader lease, and that its configuration has gshare's profile.
func (e *examination) checkScheduler() {
	list, err := e.client.CoreV1().Pods(cluster.Namespace).List(e.ctx, metav1.ListOptions{LabelSelector: SchedulerPods})
	if err != nil {
		e.addFinding(scheduler, "", "running", Unknown, err.Error(), "run doctor with permission to list pods in "+cluster.Namespace)
		return
	}
	ready := 0
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			ready++
		}
	}
	e.addCheck(scheduler, "", "running", ready > 0, Failed, fmt.Sprintf("%d of %d pods ready", ready, len(list.Items)),
		applyAll+"; kubectl logs -n "+cluster.Namespace+" -l "+SchedulerPods)
	e.checkLeaseOf(scheduler, schedulerLease, maxLeaseAge, "check the scheduler's log: none is active")
	e.checkProfile()
}

// checkLeaseOf checks that a process holds the leader lease of a component and renews it. help says what happens if none does, and what to do.
func (e *examination) checkLeaseOf(component, name string, maxAge time.Duration, help string) {
	lease, err := e.client.CoordinationV1().Leases(cluster.Namespace).Get(e.ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		e.addFinding(component, "", "leader", Failed, "no lease "+name, help)
	case err != nil:
		e.addFinding(component, "", "leader", Unknown, err.Error(), "run doctor with permission to get leases in "+cluster.Namespace)
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil:
		e.addFinding(component, "", "leader", Failed, "nobody holds the lease "+name, help)
	default:
		age := e.now.Sub(lease.Spec.RenewTime.Time).Truncate(time.Second)
		e.addCheck(component, "", "leader", age < maxAge, Failed, fmt.Sprintf("%s, renewed %v ago", *lease.Spec.HolderIdentity, max(age, 0)), help)
	}
}

// checkProfile checks that the scheduler's configuration has the profile whose name the admission policies write to pods.
func (e *examination) checkProfile() {
	profiles, note := cluster.Profiles(e.ctx, e.client)
	if note != "" {
		e.addFinding(scheduler, "", "profile", Unknown, note, "run doctor with permission to list configmaps in "+cluster.Namespace)
		return
	}
	var names []string
	there := false
	for _, p := range profiles {
		names = append(names, p.Name+" ("+p.Plugin.Name+")")
		there = there || p.Name == kube.SchedulerName
	}
	e.addCheck(scheduler, "", "profile", there, Failed, strings.Join(names, ", "),
		"add the profile "+kube.SchedulerName+" to the scheduler's configuration: the policies set this schedulerName")
}

// isReady reports whether the pod has the condition Ready.
func isReady(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
