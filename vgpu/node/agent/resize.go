package agent

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// resize applies the SM limits that elastic pods have set by annotation. A limit moves between the request and the limit of the
// placement, which stays the cap of the processes. So the scheduler's accounts do not change, and each share keeps its request.
func (s *sweeper) resize(pods []*v1.Pod) {
	for _, granted := range s.granter.grants.all() {
		i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == granted.UID })
		if i >= 0 && granted.Class() == share.Elastic {
			s.resizeOne(&granted, pods[i])
		}
	}
}

// resizeOne applies the limit of one container, and reports each outcome once.
func (s *sweeper) resizeOne(granted *grant.Grant, pod *v1.Pod) {
	defer s.granter.operations.lock(granted.ID())()
	running, served := s.granter.grants.serviceOf(granted.ID())
	if !served {
		return
	}
	placed := granted.VGPUs[0].Share.SMLimit
	limit, err := kube.SMLimitOf(pod, placed)
	if err == nil && limit != running.container.Status().VGPUs[0].CurrentSMLimit {
		err = running.container.Resize(limit)
	}
	note := ""
	switch {
	case err != nil:
		note = "; the limit was not moved: " + err.Error()
	case limit != placed:
		note = "; moved to " + limit.Percent()
	}
	if note == running.limitNote {
		return
	}
	s.granter.grants.setLimitNote(granted.ID(), note)
	s.granter.publish()
	if err != nil {
		s.Cluster.Warn(podOf(*granted), "GPULimitRefused", err.Error())
	} else {
		s.Cluster.Notify(podOf(*granted), "GPULimitMoved", "the SM limit of container "+granted.Container+" is "+limit.Percent())
	}
}
