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

// dossier is what one version of a pod says, decoded once.
type dossier struct {
	nodeview.Statement
	version string // resource version of the pod it was read from
	shape   packing.Shape
	key     string // names everything about the pod that the packer reads
}

// dossiers keeps one dossier a pod, so that a node's occupancy can be derived from its pods without decoding them again.
type dossiers struct {
	lives    func(*v1.Pod) bool // what is kept for another pod would stay for ever
	affinity bool               // whether the ranker reads workloads
	mu       sync.Mutex         // guards byUID
	byUID    map[types.UID]*dossier
}

func newDossiers(lives func(*v1.Pod) bool, affinity bool) *dossiers {
	return &dossiers{lives: lives, affinity: affinity, byUID: map[types.UID]*dossier{}}
}

// of returns the pod's dossier. Assumed and nominated copies of a pod carry the resource version of the original, but a
// node name of their own; a placement is read from the pod's annotation only, so this makes no difference. Nominees that are
// in no queue come without a spec and without a version; those are not kept.
func (d *dossiers) of(pod *v1.Pod) *dossier {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.byUID[pod.UID]
	if known == nil || known.version != pod.ResourceVersion {
		known = read(pod)
		if d.affinity {
			known.key += known.Pod.Request.Workload
		}
		if pod.ResourceVersion != "" && d.lives(pod) {
			d.byUID[pod.UID] = known
		}
	}
	return known
}

func (d *dossiers) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byUID, uid)
}

func read(pod *v1.Pod) *dossier {
	d := &dossier{Statement: *nodeview.Read(pod), version: pod.ResourceVersion}
	d.key, d.shape = keyOf(&d.Pod), packing.ShapeOf(&d.Pod)
	return d
}

// statement is what Derivation wants of a pod.
func (d *dossiers) statement(pod *v1.Pod) *nodeview.Statement { return &d.of(pod).Statement }

// keyOf writes down every field that every packer reads, so that pods with equal keys are equal to it. %#v does; the other
// verbs would call String, which rounds.
func keyOf(pod *packing.Pod) string {
	read := *pod
	read.Request.Workload, read.Request.Priority = "", ""
	read.Request.Containers = slices.Clone(read.Request.Containers)
	for i := range read.Request.Containers {
		read.Request.Containers[i].Name = ""
	}
	return fmt.Sprintf("%#v", read)
}
