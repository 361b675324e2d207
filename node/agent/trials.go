package agent

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// applyTrialQuotas gives the containers of trials the quotas that annotations of their pods specify. Such a quota may be below that of the
// share, but the scheduler always counts the share's.
func (k *residencyKeeper) applyTrialQuotas(pods []*v1.Pod) {
	for _, granted := range k.grants.all() {
		i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == granted.UID })
		if i >= 0 && granted.Class() == share.MPS {
			k.applyTrialQuota(&granted, pods[i])
			k.countWork(&granted, pods[i])
		}
	}
}

// applyTrialQuota applies the quota of one container. A refused quota is logged, and the enforcement status keeps showing the old one.
func (k *residencyKeeper) applyTrialQuota(granted *grant.Grant, pod *v1.Pod) {
	defer k.operations.lock(granted.ID())()
	running, served := k.grants.serviceOf(granted.ID())
	if !served {
		return
	}
	quota, _, err := kube.TrialQuotaOf(pod, granted.VGPUs[0].Share.QuotaRequest)
	if err == nil {
		if quota == running.container.Status().VGPUs[0].QuotaRequest {
			return
		}
		err = running.container.Narrow(quota)
	}
	if err != nil {
		k.logOnce(pod, "the quota of a trial is not enforced", err.Error())
		return
	}
	k.Log.Info("changed the quota of a trial", "container", granted.String(), "quota", quota.Percent())
	k.publish()
}

// countWork counts what the program of a trial has done, and reports it in the enforcement status of its pod. Each report writes the pod,
// and anybody can annotate any number of pods. So it counts only for containers that are alone on their slice, as those of trials are.
func (k *residencyKeeper) countWork(granted *grant.Grant, pod *v1.Pod) {
	running, served := k.grants.serviceOf(granted.ID())
	if !served || pod.Annotations[kube.AnnotationTrialQuota] == "" || len(k.grants.onSlice(granted.VGPUs[0].Slice)) > 1 {
		return
	}
	now := running.container.Status().VGPUs[0]
	if work, due := running.work.Counted(time.Now(), now.Total, now.Launches); due {
		k.grants.updateService(granted.ID(), func(s *service) { s.work = work })
		k.publish()
	}
}
