package verdict

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestShortageOfInstances: where instances are made on demand, a node may offer less than its GPUs have, and the advice names the setting.
func TestShortageOfInstances(t *testing.T) {
	for name, room := range map[string]uint8{"whole": 0, "on demand": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s := &w.slices[0]
			s.ID, s.Profile, s.Room = "MIG-1", "1g.10gb", room
			text, err := kube.EncodeInventory(kube.Inventory{Slices: w.slices})
			if err != nil {
				t.Fatal(err)
			}
			w.node.Annotations = map[string]string{kube.AnnotationInventory: text}
			w.node.Status.Allocatable = v1.ResourceList{kube.ResourceSMTime: {}}
			fix := shortageFix(kube.ResourceSMTime, w.node)
			if got := strings.Contains(fix, "kubernetes.onDemandProfiles"); got != (room != 0) {
				t.Error(fix)
			}
		})
	}
}
