package cluster

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ClaimDriver is the name of gshare's driver for resource claims, and of its DeviceClass in manifests/claims.
const ClaimDriver = "gshare.dev"

// Claims holds the resource claims of all namespaces, and the devices that nodes offer to claims through gshare's driver.
type Claims struct {
	Claims  []resourceapi.ResourceClaim
	Devices []ClaimDevice
}

// ClaimDevice is a device of gshare's driver: a GPU or MIG instance of which resource claims get shares.
type ClaimDevice struct {
	Node string // also the name of its pool
	resourceapi.Device
}

// ReadClaims reads the resource claims and the ResourceSlices of a cluster once.
func ReadClaims(ctx context.Context, client kubernetes.Interface) (*Claims, error) {
	claims, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list resource claims: %w", err)
	}
	slices, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	c := &Claims{Claims: claims.Items}
	for _, s := range slices.Items {
		if s.Spec.Driver != ClaimDriver {
			continue
		}
		for _, d := range s.Spec.Devices {
			c.Devices = append(c.Devices, ClaimDevice{s.Spec.Pool.Name, d})
		}
	}
	return c, nil
}

// Find returns the claim with this name, or nil if there is none.
func (c *Claims) Find(namespace, name string) *resourceapi.ResourceClaim {
	for i := range c.Claims {
		if claim := &c.Claims[i]; claim.Namespace == namespace && claim.Name == name {
			return claim
		}
	}
	return nil
}

// Device returns the device that a claim has been allocated, or nil if no node offers it any more.
func (c *Claims) Device(r *resourceapi.DeviceRequestAllocationResult) *ClaimDevice {
	for i := range c.Devices {
		if d := &c.Devices[i]; r.Driver == ClaimDriver && d.Node == r.Pool && d.Name == r.Device {
			return d
		}
	}
	return nil
}

// On returns the claims to which a part of the device is allocated, each with its allocation, in the order of c.Claims.
func (c *Claims) On(d *ClaimDevice) (holders []ClaimHolder) {
	for i := range c.Claims {
		claim := &c.Claims[i]
		if claim.Status.Allocation == nil {
			continue
		}
		for n := range claim.Status.Allocation.Devices.Results {
			if r := &claim.Status.Allocation.Devices.Results[n]; r.Driver == ClaimDriver && d.Node == r.Pool && d.Name == r.Device {
				holders = append(holders, ClaimHolder{claim, r})
			}
		}
	}
	return holders
}

// ClaimHolder is a claim and its allocation on one device.
type ClaimHolder struct {
	Claim  *resourceapi.ResourceClaim
	Result *resourceapi.DeviceRequestAllocationResult
}

// Name returns namespace/name of the pod that uses the claim, or of the claim itself if no pod uses it.
func (h ClaimHolder) Name() string {
	for _, user := range h.Claim.Status.ReservedFor {
		return h.Claim.Namespace + "/" + user.Name
	}
	return h.Claim.Namespace + "/" + h.Claim.Name
}
