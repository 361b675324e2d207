package audit

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// corruption breaks a rule for certain, and says which ones it can have broken.
type corruption struct {
	name  string
	do    func(f *filler, pod *v1.Pod)
	kinds []Kind
}

var corruptions = []corruption{
	{"share enlarged", func(f *filler, pod *v1.Pod) {
		f.edit(pod, func(p *kube.Placement) { enlarge(&firstVGPU(p).Share) })
	}, []Kind{WrongShare}},
	{"duplicated until the area is too large", func(f *filler, pod *v1.Pod) { f.duplicate(pod, 1_000_000/f.area(pod)) },
		[]Kind{NoTable, NoPacking}},
	{"memory above the slice", func(f *filler, pod *v1.Pod) { f.raiseMemory(pod, 40960) }, []Kind{Memory}},
}

// enlarge adds a per mille of time, or takes one of the SMs where it has all of the time.
func enlarge(s *share.Share) {
	if s.QuotaRequest < share.Whole {
		s.QuotaRequest, s.QuotaLimit = s.QuotaRequest+1, s.QuotaLimit+1
	} else {
		s.SMRequest, s.SMLimit = s.SMRequest-1, s.SMLimit-1
	}
}

func (f *filler) area(pod *v1.Pod) int {
	request, _, _ := kube.RequestOf(pod)
	return int(request.Area())
}

// duplicate assigns the pod's placement to copies of it, too.
func (f *filler) duplicate(pod *v1.Pod, copies int) {
	for i := range copies {
		twin := pod.DeepCopy()
		twin.Name, twin.UID = fmt.Sprintf("%s-twin%d", pod.Name, i), pod.UID+"x"
		f.edit(twin, func(p *kube.Placement) { p.UID = twin.UID })
		f.cluster.pods = append(f.cluster.pods, *twin)
	}
}

// raiseMemory lets the pod ask for, and have, so much that its neighbours' memory is gone.
func (f *filler) raiseMemory(pod *v1.Pod, mib int64) {
	r := pod.Spec.Containers[0].Resources
	r.Limits[kube.ResourceMemory], r.Requests[kube.ResourceMemory] = number(mib), number(mib)
	request, _, _ := kube.RequestOf(pod)
	var slice string
	f.edit(pod, func(p *kube.Placement) {
		slice = firstVGPU(p).Slice
		firstVGPU(p).Share = request.Containers[0].Share
	})
	f.put(pod.Spec.NodeName, slice, 1, 1, kube.Slots)
}

func TestRandomFillingPasses(t *testing.T) {
	shares := 0
	for seed := range uint64(200) {
		f := fillRandomly(t, seed)
		if r := f.check(); len(r.Violations) != 0 || len(r.Orphans) != 0 {
			t.Fatalf("seed %d: %+v", seed, r.Violations)
		}
		shares += f.pods
	}
	t.Logf("%d shares", shares)
}

func TestRandomCorruptionIsFound(t *testing.T) {
	for seed := range uint64(200) {
		for _, corrupt := range corruptions {
			f := fillRandomly(t, seed)
			pod := &f.cluster.pods[f.random.IntN(len(f.cluster.pods))]
			if f.area(pod) < 10_000 {
				continue // would need hundreds of duplicates
			}
			corrupt.do(f, pod)
			if r := f.check(); !found(r, corrupt.kinds) {
				t.Fatalf("seed %d, %s: %+v", seed, corrupt.name, r.Violations)
			}
		}
	}
}

func found(r Report, kinds []Kind) bool {
	for _, v := range r.Violations {
		for _, kind := range kinds {
			if v.Kind == kind {
				return true
			}
		}
	}
	return false
}
