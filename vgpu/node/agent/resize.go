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
func (g *granter) resize(pods []*v1.Pod) {
	for _, granted := range g.all() {
		i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == granted.UID })
		if i >= 0 && granted.Class() == share.Elastic {
			g.resizeOne(&granted, pods[i])
		}
	}
}

// resizeOne applies the limit of one container, and reports each outcome once.
func (g *granter) resizeOne(granted *grant.Grant, pod *v1.Pod) {
	defer g.operations.lock(granted.ID())()
	s, served := g.serviceOf(granted.ID())
	if !served {
		return
	}
	placed := granted.VGPUs[0].Share.SMLimit
	limit, err := kube.SMLimitNow(pod, placed)
	if err == nil && limit != s.container.Status().VGPUs[0].CurrentSMLimit {
		err = s.container.Resize(limit)
	}
	note := ""
	switch {
	case err != nil:
		note = "; the limit was not moved: " + err.Error()
	case limit != placed:
		note = "; moved to " + limit.Percent()
	}
	if note == s.limitNote {
		return
	}
	g.setLimitNote(granted.ID(), note)
	g.publish()
	if err != nil {
		g.Cluster.Warn(podOf(*granted), "GPULimitRefused", err.Error())
	} else {
		g.Cluster.Notify(podOf(*granted), "GPULimitMoved", "the SM limit of container "+granted.Container+" is "+limit.Percent())
	}
}

// setLimitNote stores how the SM limit of a container was moved, for its enforcement status.
func (g *granter) setLimitNote(id, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.services[id]; s != nil {
		s.limitNote = note
	}
}
