package sharing

import (
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// podInfo is the decoded request and placement of one version of a pod, with its shape (request size) and its cache key for the packer.
type podInfo struct {
	nodeview.PodRequest
	version string // resource version of the pod from which it was decoded
	shape   packing.Shape
	key     string // equal for pods that the packer cannot tell apart
}

// podInfos caches the podInfo of each pod, so that a node's occupancy can be derived without decoding its pods again.
type podInfos struct {
	isCached func(*v1.Pod) bool // whether the informer has the pod; the entry of any other pod would never be removed
	affinity bool               // whether the ranker reads workloads
	mu       sync.Mutex         // guards byUID
	byUID    map[types.UID]*podInfo
}

func newPodInfos(lives func(*v1.Pod) bool, affinity bool) *podInfos {
	return &podInfos{isCached: lives, affinity: affinity, byUID: map[types.UID]*podInfo{}}
}

// get returns the pod's podInfo, and decodes the pod if its resource version is new. Assumed and nominated copies of a pod have the
// original's resource version but another node name, which is not part of a podInfo. Nominated pods that are in no queue have neither a
// spec nor a version, and are not cached.
func (d *podInfos) get(pod *v1.Pod) *podInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.byUID[pod.UID]
	if known == nil || known.version != pod.ResourceVersion {
		known = decodePod(pod)
		if d.affinity {
			known.key += known.Pod.Request.Workload
		}
		if pod.ResourceVersion != "" && d.isCached(pod) {
			d.byUID[pod.UID] = known
		}
	}
	return known
}

// forget removes the pod's entry from the cache.
func (d *podInfos) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byUID, uid)
}

func decodePod(pod *v1.Pod) *podInfo {
	d := &podInfo{PodRequest: *nodeview.PodRequestOf(pod), version: pod.ResourceVersion}
	d.key, d.shape = keyOf(&d.Pod), packing.ShapeOf(&d.Pod)
	return d
}

// requestOf returns the decoded request and placement of a pod.
func (d *podInfos) requestOf(pod *v1.Pod) *nodeview.PodRequest { return &d.get(pod).PodRequest }

// keyOf returns a string that is equal for pods that a packer cannot tell apart: it contains every field that a packer reads. It formats
// with %#v, because other verbs call String methods, which round.
func keyOf(pod *packing.Pod) string {
	read := *pod
	read.Request.Workload, read.Request.Priority = "", ""
	read.Request.Containers = slices.Clone(read.Request.Containers)
	for i := range read.Request.Containers {
		read.Request.Containers[i].Name = ""
	}
	return fmt.Sprintf("%#v", read)
}
