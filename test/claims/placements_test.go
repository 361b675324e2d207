package claims_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// placements returns the possible placements of MIG instances on A100 GPUs.
func placements(t *testing.T, gpus int) (offered []inventory.Slice) {
	t.Helper()
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	for g := range gpus {
		for i := range m.Profiles {
			p := &m.Profiles[i]
			for _, start := range p.Starts {
				if p.Media {
					continue
				}
				id := fmt.Sprintf("5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a%02d.c%dm%d.%d", g, p.Compute, p.Memory, start)
				s := slice(id, p.SMs, int64(p.Memory)*10240, share.Exclusive, share.MPS)
				s.Device, s.Profile, s.NUMA = "GPU-"+id[:36], p.Name, nil
				s.Room = uint8(mig.Layout{}.With(mig.Instance{Profile: p, Start: start}).Used)
				offered = append(offered, s)
			}
		}
	}
	return offered
}

// TestPlacementsAreValid: the API server stores the shared counters of a node with nine GPUs, and the devices that consume them, without dropping
// any field.
func TestPlacementsAreValid(t *testing.T) {
	c := connect(t)
	offered := placements(t, 9)
	stored, err := c.publish("partitioned", offered)
	c.must(err)
	pool := draplugin.Resources("partitioned", offered).Pools["partitioned"]
	devices := 0
	for i, s := range stored {
		devices += len(s.Spec.Devices)
		if diff := cmp.Diff(pool.Slices[i].SharedCounters, s.Spec.SharedCounters); diff != "" {
			t.Errorf("counters are stored otherwise (-published +stored):\n%s", diff)
		}
		if diff := cmp.Diff(pool.Slices[i].Devices, s.Spec.Devices); diff != "" {
			t.Errorf("devices are stored otherwise (-published +stored):\n%s", diff)
		}
	}
	if devices != 9*18 {
		t.Errorf("%d devices are stored", devices)
	}
}

func ofProfile(name string) string {
	return fmt.Sprintf(`has(device.attributes["gshare.dev"].profile) && device.attributes["gshare.dev"].profile == %q`, name)
}

// TestInstancesUnderStockScheduler: claims for MIG profiles get instances that can coexist on the GPU, and claims for whole GPUs get the other GPU.
// A claim that does not fit waits until the claim in its way is deleted. Shares of one instance consume its memory slices once.
func TestInstancesUnderStockScheduler(t *testing.T) {
	c := connect(t)
	c.prepare("cut", "d")
	offered := append(placements(t, 1), slice("GPU-A", 132, 81920, share.Exclusive, share.MPS))
	_, err := c.publish("cut", offered)
	c.must(err)
	half := map[resourceapi.QualifiedName]string{"sm": "50", "memory": "1Gi"}
	const prefix = "5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a00."
	for _, test := range []struct {
		name, profile string
		requests      map[resourceapi.QualifiedName]string
		want          string
	}{
		{"small", "1g.10gb", nil, prefix + "c1m1.6"},
		{"shared", "3g.40gb", half, prefix + "c3m4.0"},
		{"shared-too", "3g.40gb", half, prefix + "c3m4.0"},
		{"middle", "2g.20gb", nil, prefix + "c2m2.4"},
	} {
		c.claim("d", test.name, "cut", test.requests, ofProfile(test.profile))
		if got := c.allocated("d", test.name, "cut", offered); got.Slice != test.want {
			t.Errorf("%s: got %+v, want %s", test.name, got, test.want)
		}
	}
	c.claim("d", "waits", "cut", nil, ofProfile("1g.10gb"))
	c.claim("d", "whole", "cut", nil, `!has(device.attributes["gshare.dev"].profile)`)
	if got := c.allocated("d", "whole", "cut", offered); got.Slice != "GPU-A" {
		t.Errorf("got %+v, want the whole GPU", got)
	}
	c.wait(func() string {
		if c.condition("d", "waits") == "" {
			return "the claim was not tried"
		}
		return ""
	})
	claim, err := c.ResourceV1().ResourceClaims("d").Get(c.ctx, "waits", metav1.GetOptions{})
	c.must(err)
	if claim.Status.Allocation != nil {
		t.Errorf("a GPU whose memory slices are all taken gave %+v", claim.Status.Allocation.Devices.Results)
	}
	c.must(c.CoreV1().Pods("d").Delete(c.ctx, "middle", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	middle, err := c.ResourceV1().ResourceClaims("d").Get(c.ctx, "middle", metav1.GetOptions{})
	c.must(err)
	middle.Status.ReservedFor, middle.Status.Allocation = nil, nil // as the resource claim controller, which does not run here, would do
	_, err = c.ResourceV1().ResourceClaims("d").UpdateStatus(c.ctx, middle, metav1.UpdateOptions{})
	c.must(err)
	if got := c.allocated("d", "waits", "cut", offered); got.Slice != prefix+"c1m1.5" {
		t.Errorf("got %+v, want the last free placement", got)
	}
}
