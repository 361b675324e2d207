package live

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// nvidiaDriver is the name of NVIDIA's DRA driver for GPUs.
const nvidiaDriver = "gpu.nvidia.com"

// driverDevice is a device of NVIDIA's DRA driver: a GPU, or a MIG instance of one.
type driverDevice struct {
	id             string // of the physical GPU
	model, profile string
	memory         int64 // MiB
}

// claims holds the resource claims of a cluster and the devices of NVIDIA's DRA driver.
type claims struct {
	err     error // why they could not be listed
	all     map[string]*resourcev1.ResourceClaim
	devices map[string]driverDevice // by pool and device
	nodes   map[string][]driverDevice
}

// readClaims lists claims and devices if any pod has claims.
func readClaims(ctx context.Context, client kubernetes.Interface, pods []*v1.Pod) claims {
	c := claims{all: map[string]*resourcev1.ResourceClaim{}, devices: map[string]driverDevice{}, nodes: map[string][]driverDevice{}}
	used := false
	for _, pod := range pods {
		used = used || len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
	}
	if !used {
		return c
	}
	list, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.err = err
		return c
	}
	offered, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		c.err = err
		return c
	}
	for i := range list.Items {
		c.all[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	for i := range offered.Items {
		c.readSlice(&offered.Items[i])
	}
	return c
}

func (c *claims) readSlice(s *resourcev1.ResourceSlice) {
	if s.Spec.Driver != nvidiaDriver || s.Spec.NodeName == nil {
		return
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		memory := d.Capacity["memory"].Value
		gpu, _, _ := strings.Cut(d.Name, "-mig-")
		device := driverDevice{
			id:     s.Spec.Pool.Name + "/" + gpu,
			model:  strings.ReplaceAll(textOf(d, "productName"), " ", "-"),
			memory: min(memory.Value()>>20, maxLabel),
		}
		switch textOf(d, "type") {
		case "gpu":
		case "mig":
			device.profile = textOf(d, "profile")
		default:
			continue
		}
		c.devices[s.Spec.Pool.Name+"/"+d.Name] = device
		c.nodes[*s.Spec.NodeName] = append(c.nodes[*s.Spec.NodeName], device)
	}
}

func textOf(d *resourcev1.Device, name resourcev1.QualifiedName) string {
	if text := d.Attributes[name].StringValue; text != nil {
		return *text
	}
	return ""
}

// devicesOf returns the devices that are allocated to a pod's claims. Claims for other things than GPUs are left out. A claim whose
// devices are not known is an error.
func (c *claims) devicesOf(pod *v1.Pod) (devices []driverDevice, _ error) {
	for _, ref := range pod.Spec.ResourceClaims {
		if c.err != nil {
			return nil, fmt.Errorf("resource claims: %w", c.err)
		}
		claim := c.all[pod.Namespace+"/"+claimName(pod, ref)]
		if claim == nil {
			return nil, fmt.Errorf("resource claim %s: not found", ref.Name)
		}
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.AdminAccess != nil && *r.AdminAccess || !looksLikeGPU(r.Driver) {
				continue
			}
			d, ok := c.devices[r.Pool+"/"+r.Device]
			if r.Driver != nvidiaDriver || !ok {
				return nil, fmt.Errorf("resource claim %s: device %s of driver %s is not known", ref.Name, r.Device, r.Driver)
			}
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// claimName returns the name of the claim that a pod refers to, or an empty string if it has not been made yet.
func claimName(pod *v1.Pod, ref v1.PodResourceClaim) string {
	if ref.ResourceClaimName != nil {
		return *ref.ResourceClaimName
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name == ref.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}
