package draplugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gshare-dev/gshare/node/inventory"
)

// offering is a Node that offers what a test sets. It is used by one goroutine at a time.
type offering struct {
	offer   Offer
	changed chan struct{}
}

func (o *offering) OfferedToClaims() Offer {
	offer := o.offer
	offer.Changed = o.changed
	return offer
}

func (o *offering) set(offer Offer) {
	o.offer = offer
	changed := o.changed
	o.changed = make(chan struct{})
	if changed != nil {
		close(changed)
	}
}

func (*offering) PrepareClaim(context.Context, *resourceapi.ResourceClaim, []Part) (string, error) {
	panic("not called")
}
func (*offering) UnprepareClaim(context.Context, types.UID) error { panic("not called") }

// TestHealth: the kubelet learns the health of the devices at once and with each change, and again while the driver answers. It waits no longer
// for the next report than the driver's last answer counts.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &offering{}
		node.set(Offer{})
		reports := make(chan kubeletplugin.DeviceHealthReport, 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		s := service{Plugin: &Plugin{NodeName: "n", Node: node, HealthTimeout: 30 * time.Second}}
		go func() { ended <- s.WatchHealthStatus(ctx, reports) }()

		said := func() (all []string) {
			synctest.Wait()
			for len(reports) > 0 {
				for _, d := range (<-reports).Devices {
					all = append(all, d.PoolName+"/"+d.DeviceName+" "+string(d.Health)+" "+d.Message+" "+d.HealthCheckTimeout.String())
				}
			}
			return all
		}
		expect := func(what string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, said()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		expect("before the driver has answered")

		works, failed, used := sliceOf("GPU-A", 132, 1024, shared...), sliceOf("GPU-B", 132, 1024, shared...), sliceOf("GPU-C", 132, 1024, shared...)
		failed.Fault, used.Used = "Xid 79", "pod of-another-namespace"
		node.set(Offer{Slices: []inventory.Slice{works, failed, used}, Checked: time.Now()})
		const aside = "n/gpu-c Healthy processes without a share use the device, too "
		expect("a change", "n/gpu-a Healthy  30s", "n/gpu-b Unhealthy Xid 79 30s", aside+"30s")
		time.Sleep(29 * time.Second) // in which the driver does not answer
		expect("the same again", "n/gpu-a Healthy  20s", "n/gpu-b Unhealthy Xid 79 20s", aside+"20s", "n/gpu-a Healthy  10s", "n/gpu-b Unhealthy Xid 79 10s", aside+"10s")
		time.Sleep(time.Minute)
		expect("while the driver hangs")
		node.set(Offer{Slices: []inventory.Slice{works}, Checked: time.Now()})
		expect("it answers", "n/gpu-a Healthy  30s")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestPublishOffers: what is not known yet does not replace what an earlier agent has published; an empty offer that is known does.
func TestPublishOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &offering{}
		node.set(Offer{})
		var published []int // numbers of devices
		publish := func(_ context.Context, r resourceslice.DriverResources) error {
			published = append(published, len(r.Pools["n"].Slices[0].Devices))
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		go (&Plugin{NodeName: "n", Node: node}).publishOffers(ctx, publish, nil)
		for _, offer := range []Offer{{}, {Known: true, Slices: []inventory.Slice{sliceOf("GPU-A", 132, 1024, shared...)}}, {Known: true}} {
			synctest.Wait()
			node.set(offer)
		}
		synctest.Wait()
		cancel()
		if diff := cmp.Diff([]int{1, 0}, published); diff != "" {
			t.Error(diff)
		}
	})
}
