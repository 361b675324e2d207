package audit

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTurns: shares of class swap hold the 40 GiB of a slice in turn, with 20 GiB of the host beyond it and 1 GiB that each of them keeps.
func TestTurns(t *testing.T) {
	for name, test := range map[string]struct {
		memory []int64 // GiB of the pods
		want   []Kind
		admits []int64 // GiB of one more that the slice could take
	}{
		"none":                  {nil, nil, []int64{1, 10, 30, 40}},
		"one":                   {[]int64{30}, nil, []int64{1, 10, 30}},
		"two":                   {[]int64{30, 20}, nil, []int64{1, 10}},
		"all of slice and host": {[]int64{30, 30}, nil, nil},
		"more than that":        {[]int64{30, 31}, []Kind{Memory}, nil},
		"as large as the slice": {[]int64{40, 1}, []Kind{Memory}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			s := gpu("x0")
			s.Classes, s.Swap = append(s.Classes, share.Swap), &kube.Swap{HostMiB: 20 << 10, KeptMiB: 1 << 10}
			c.node("x", s)
			swap := func(gib int64) spec {
				return spec{sm: 100, memory: gib << 10, class: share.Swap, annotations: note(kube.AnnotationIsolation, "swap")}
			}
			for i, gib := range test.memory {
				pod := swap(gib)
				pod.name, pod.node, pod.slices = string(rune('a'+i)), "x", []string{"x0"}
				c.add(pod)
			}
			var bound []*v1.Pod
			for i := range c.pods {
				bound = append(bound, &c.pods[i])
			}
			for resource, has := range kube.NodeResources(kube.Inventory{Slices: []kube.Slice{s}}, bound...) {
				c.nodes[0].Status.Allocatable[resource] = has
			}
			r := c.check()
			var kinds []Kind
			for _, v := range r.Violations {
				kinds = append(kinds, v.Kind)
			}
			if !slices.Equal(kinds, test.want) {
				t.Errorf("violations %+v, want %v", r.Violations, test.want)
			}
			var admits []int64
			for _, gib := range []int64{1, 10, 30, 40} {
				if r.Admissible(c.make(swap(gib))) != nil {
					admits = append(admits, gib)
				}
			}
			if test.want == nil && !slices.Equal(admits, test.admits) {
				t.Errorf("one more of %v GiB, want of %v", admits, test.admits)
			}
			if other := r.Admissible(c.make(spec{sm: 10})); (other != nil) != (test.memory == nil) {
				t.Errorf("one of another class: %v", other)
			}
		})
	}
}
