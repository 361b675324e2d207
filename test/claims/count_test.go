package claims_test

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/inventory"
)

// countedAlike checks that Kueue 0.19 charges the claim's queue the same amount that the scheduler charges the device. What docs/queues.md
// says about quotas by capacity depends on this.
func (c *cluster) countedAlike(namespace, name string, of inventory.Slice, requests map[resourceapi.QualifiedName]string) {
	c.t.Helper()
	claim, err := c.ResourceV1().ResourceClaims(namespace).Get(c.ctx, name, metav1.GetOptions{})
	c.must(err)
	device := draplugin.Resources("n", []inventory.Slice{of}).Pools["n"].Slices[0].Devices[0]
	for capacity, consumed := range claim.Status.Allocation.Devices.Results[0].ConsumedCapacity {
		charge := queueCharge(device.Capacity[capacity], requests[capacity])
		if consumed.CmpInt64(charge) != 0 {
			c.t.Errorf("%s: the scheduler counts %s of %s, Kueue %d", name, consumed.String(), capacity, charge)
		}
	}
}

// queueCharge computes what a request for a capacity costs, as documented by Kueue 0.19: the request, or the policy's default if there is
// none, rounded up to a value that the policy admits.
func queueCharge(of resourceapi.DeviceCapacity, request string) int64 {
	policy := of.RequestPolicy
	amount := policy.Default.Value()
	if request != "" {
		amount = new(resource.MustParse(request)).Value()
	}
	if r := policy.ValidRange; r != nil {
		least, step := r.Min.Value(), r.Step.Value()
		steps := (max(amount, least) - least + step - 1) / step
		return least + steps*step
	}
	for _, v := range policy.ValidValues {
		if v.Value() >= amount {
			return v.Value()
		}
	}
	return -1
}
