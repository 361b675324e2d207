package kube_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

func TestResidencyOf(t *testing.T) {
	const (
		wanted  = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
		reached = `{"v":1,"residency":{"seq":1,"level":"Hot"}}`
	)
	for _, c := range []struct {
		name            string
		wanted, reached string
		w               residency.Wanted
		r               residency.Reached
		fails           bool
	}{
		{name: "not an instance", w: residency.Fixed},
		{name: "not started", wanted: wanted, w: residency.Wanted{Seq: 2, Level: residency.Shared}},
		{"being lowered", wanted, reached, residency.Wanted{Seq: 2, Level: residency.Shared}, residency.Reached{Seq: 1, Level: residency.Hot}, false},
		{name: "malformed wanted", wanted: "Shared", reached: reached, w: residency.Fixed, fails: true},
		{name: "malformed reached", wanted: wanted, reached: "{}", w: residency.Fixed, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.Annotations = map[string]string{}
			for key, text := range map[string]string{kube.AnnotationResidency: c.wanted, kube.AnnotationResidencyReached: c.reached} {
				if text != "" {
					pod.Annotations[key] = text
				}
			}
			w, r, err := kube.ResidencyOf(pod)
			if w != c.w || r != c.r || (err != nil) != c.fails {
				t.Errorf("ResidencyOf = %+v, %+v, %v; want %+v, %+v, error: %t", w, r, err, c.w, c.r, c.fails)
			}
		})
	}
}
