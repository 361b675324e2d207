package agent

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// resize gives elastic containers the SM limits that their pods say now: between the request and the limit that they were placed
// with, which their processes keep as cap. The placement goes on counting, so the scheduler need not know, and nobody
// has less than was promised to him.
func (a *Agent) resize(pods []*v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.book.All() {
		i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == g.UID })
		if c := a.containers[g.ID()]; c != nil && i >= 0 && g.Class() == share.Elastic {
			a.resizeOne(&g, c, pods[i])
		}
	}
}

// resizeOne tells the pod what became of what it says, once.
func (a *Agent) resizeOne(g *grant.Grant, c *tokenserver.Container, pod *v1.Pod) {
	placed := g.VGPUs[0].Share.SMLimit
	limit, err := kube.SMLimitNow(pod, placed)
	if err == nil && limit != c.Status().VGPUs[0].CurrentSMLimit {
		err = c.Resize(limit)
	}
	said := ""
	switch {
	case err != nil:
		said = "; the limit was not moved: " + err.Error()
	case limit != placed:
		said = "; moved to " + limit.Percent()
	}
	if said == a.limits[g.ID()] {
		return
	}
	a.limits[g.ID()] = said
	signal(a.report)
	if err != nil {
		a.Cluster.Warn(podOf(*g), "GPULimitRefused", err.Error())
	} else {
		a.Cluster.Tell(podOf(*g), "GPULimitMoved", "the SM limit of container "+g.Container+" is "+limit.Percent())
	}
}
