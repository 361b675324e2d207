package audit

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// together makes one pod of a container for each spec.
func together(c *cluster, specs ...spec) v1.Pod {
	var pod v1.Pod
	for i, s := range specs {
		made := c.make(s)
		made.Spec.Containers[0].Name = string(rune('a' + i))
		if i == 0 {
			pod = made
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, made.Spec.Containers[0])
		}
	}
	return pod
}

// TestContainersCompete: what each container finds alone, they may not find together.
func TestContainersCompete(t *testing.T) {
	for name, test := range map[string]struct {
		specs []spec
		fits  bool
	}{
		"one each":                  {[]spec{{sm: 60}, {sm: 60}}, true},
		"one too many":              {[]spec{{sm: 60}, {sm: 60}, {sm: 60}}, false},
		"the small one must yield":  {[]spec{{sm: 40}, {sm: 100}, {sm: 60}}, true},
		"but not to two":            {[]spec{{sm: 40}, {sm: 100}, {sm: 61}}, false},
		"two on both, one on one":   {[]spec{{sm: 50, vgpus: 2}, {sm: 50, vgpus: 2}}, true},
		"nothing is left over":      {[]spec{{sm: 50, vgpus: 2}, {sm: 50, vgpus: 2}, {sm: 1}}, false},
		"memory competes too":       {[]spec{{sm: 10, memory: 30000}, {sm: 10, memory: 30000}, {sm: 10, memory: 10960}}, true},
		"memory to the last of MiB": {[]spec{{sm: 10, memory: 30000}, {sm: 10, memory: 30000}, {sm: 10, memory: 10961}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("x", gpu("x0"), gpu("x1"))
			if got := len(c.check().Admissible(together(c, test.specs...))) == 1; got != test.fits {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestContainersOnMIG: the vGPUs of a container are on different devices, those of two containers need not be.
func TestContainersOnMIG(t *testing.T) {
	c := newCluster(t)
	c.node("x", mig("x0-0", "x0"), mig("x0-1", "x0"), mig("x1-0", "x1"))
	any := note(kube.AnnotationSlice, share.AnyMIG)
	three := together(c, spec{sm: 100, vgpus: 2, annotations: any}, spec{sm: 100})
	four := together(c, spec{sm: 100, vgpus: 2, annotations: any}, spec{sm: 100}, spec{sm: 100})
	pairs := together(c, spec{sm: 60, vgpus: 2, annotations: any}, spec{sm: 60, vgpus: 2})
	r := c.check()
	if len(r.Admissible(three)) != 1 || len(r.Admissible(four)) != 0 || len(r.Admissible(pairs)) != 0 {
		t.Errorf("three %v, four %v, pairs %v", r.Admissible(three), r.Admissible(four), r.Admissible(pairs))
	}
}

// TestSearchLeavesNoTrace: trying containers on the slices must not load them.
func TestSearchLeavesNoTrace(t *testing.T) {
	c := newCluster(t)
	c.node("x", gpu("x0"), gpu("x1"))
	r := c.check()
	for range 3 {
		for _, s := range []spec{{sm: 100}, {sm: 99}, {sm: 98}} {
			if got := r.Admissible(together(c, s, s)); len(got) != 1 {
				t.Fatalf("got %v", got)
			}
		}
	}
}

// TestSearchIsExhaustive: five pairs of 60 % need ten of eight GPUs, no two of which are alike. All ways are tried, and
// none twice.
func TestSearchIsExhaustive(t *testing.T) {
	c := newCluster(t)
	var gpus []kube.Slice
	for i := range int64(8) {
		g := gpu(string(rune('a' + i)))
		g.MemoryMiB += i
		gpus = append(gpus, g)
	}
	c.node("x", gpus...)
	pair := spec{sm: 60, vgpus: 2}
	r := c.check()
	if got := r.Admissible(together(c, pair, pair, pair, pair)); len(got) != 1 {
		t.Errorf("four pairs: %v", got)
	}
	if got := r.Admissible(together(c, pair, pair, pair, pair, pair)); len(got) != 0 {
		t.Errorf("five pairs: %v", got)
	}
}
