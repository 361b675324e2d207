package standalone

import (
	"fmt"
	"slices"
	"sort"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// deviceSet is the GPUs and MIG instances that the node shares, and the rules by which requests are placed on them. It is immutable.
type deviceSet struct {
	*Options
	packer packing.Packer
	empty  *packing.Node // the devices without runs
}

// newDeviceSet returns the devices of the machine that the configuration lists, or all of them. It returns an error if there is none.
func newDeviceSet(o *Options) (*deviceSet, error) {
	d := &deviceSet{Options: o, packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}}}}
	var list []packing.Slice
	found := 0
	for _, device := range o.Devices {
		if len(o.Config.Devices) > 0 && !slices.Contains(o.Config.Devices, device.UUID) {
			continue
		}
		found++
		list = append(list, d.slicesOf(device)...)
	}
	if len(list) == 0 {
		if len(o.Config.Devices) > 0 {
			return nil, fmt.Errorf("devices: %w of those that the configuration lists", gpu.ErrNoGPU)
		}
		return nil, fmt.Errorf("%w that can be shared: those in MIG mode have no working instances", gpu.ErrNoGPU)
	}
	if missing := len(o.Config.Devices) - found; missing > 0 {
		o.Log.Warn("configured devices are missing", "missing", missing, "configured", o.Config.Devices)
	}
	d.empty = packing.NewNode("this machine", list, 0, 0)
	return d, nil
}

// slicesOf returns what a GPU offers for sharing: the whole GPU or, in MIG mode, its healthy MIG instances.
func (d *deviceSet) slicesOf(device gpu.Device) (list []packing.Slice) {
	if !device.MIG {
		return []packing.Slice{d.sliceOf(device, gpu.Instance{UUID: device.UUID, SMs: device.SMs, Memory: device.Memory})}
	}
	for _, i := range device.Instances {
		if i.Fault == "" {
			list = append(list, d.sliceOf(device, i))
		}
	}
	return list
}

// sliceOf converts a MIG instance, or a whole GPU given as one, to a slice for the packer. Without MPS the slice offers class exclusive
// only.
func (d *deviceSet) sliceOf(device gpu.Device, i gpu.Instance) packing.Slice {
	classes := []share.Isolation{share.Exclusive}
	if d.MPS.Available() == nil {
		classes = append(classes, share.MPS, share.Elastic)
	}
	var where packing.Locality
	if i.Profile == "" { // instances cannot reach other GPUs
		where = nodeview.LocalityOf(device.NUMA, device.NVLink)
	}
	return packing.Slice{
		Locality: where, ID: packing.SliceID(i.UUID), Device: device.UUID, Model: device.Model, Profile: i.Profile, SMs: i.SMs,
		Memory: gpu.MemoryForShares(i.Memory, share.Bytes(*d.Config.ContextReserveMiB)*share.MiB, classes), Classes: classes,
		Healthy: true, Reserve: *d.Config.ReservePerMille, MaxShares: d.Config.MaxShares, Gamma: *d.Config.GammaPercent * 10, MixTenants: d.Config.Rules().MixTenants,
	}
}

// loaded returns a copy of the devices that is loaded with the shares of the given runs.
func (d *deviceSet) loaded(runs []*run) *packing.Node {
	node := d.empty.Clone()
	for _, r := range runs {
		node.Take(packing.Slots, r.pod(), packing.Plan{r.picks(node)})
	}
	return node
}

// sliceByUUID returns the GPU or MIG instance with a UUID; zero if the node does not share it.
func (d *deviceSet) sliceByUUID(uuid string) packing.Slice {
	i, ok := d.empty.SliceIndex(packing.SliceID(uuid))
	if !ok {
		return packing.Slice{}
	}
	return d.empty.Slices[i]
}

// findDevices returns a device for each vGPU of a request, or a refusal with the reason and with smaller requests that would fit.
func (d *deviceSet) findDevices(node *packing.Node, pod *packing.Pod) ([]packing.Pick, *control.Refusal) {
	if err := pod.Request.ValidateDevices(); err != nil {
		refusal := refusalOf(err)
		refusal.Fits = []string{fmt.Sprintf("--sm %d --isolation exclusive", 100*pod.Request.Containers[0].VGPUs)}
		return nil, refusal
	}
	plan, _, refusal := d.packer.Place(node, pod)
	if refusal != packing.Admitted {
		field := refusalFields[refusal]
		if sh := pod.Request.Containers[0].Share; refusal == packing.OverLimits && sh.SMLimit > sh.SMRequest {
			field = share.FieldSMLimit
		}
		return nil, &control.Refusal{Kind: control.Busy, Field: field, Reason: d.refusalText(refusal), Fits: d.suggestions(node, pod)}
	}
	return plan[0], nil
}

// refusalFields maps why the packer refused a request to the field of the request at fault. Refusals that no single field causes are missing.
var refusalFields = map[packing.Refusal]string{
	packing.NotEnforceable: share.FieldIsolation, packing.OtherClass: share.FieldIsolation,
	packing.TooFewDevices: share.FieldVGPU, packing.NoMemory: share.FieldMemory, packing.OverLimits: share.FieldQuotaLimit,
}

// refusalText returns the text for the user about a refusal by the packer. If sharing is impossible without MPS, it includes why MPS is
// unavailable.
func (d *deviceSet) refusalText(r packing.Refusal) string {
	switch err := d.MPS.Available(); {
	case r == packing.NotEnforceable && err != nil:
		return fmt.Sprintf("%v: %v, so a device cannot be shared", r, err)
	case r == packing.OtherTenant:
		return "the GPUs have programs of another user; \"tenancy: mixed\" in the agent's configuration lets users share a GPU"
	case r == packing.OverLimits:
		return fmt.Sprintf("the limits of the programs on a GPU would add up to more than %d %%", d.Config.Rules().GammaPercent)
	}
	return r.String()
}

// suggestions returns flags of gshare run with which a refused request would fit: the largest SMs, quota, memory or limit of SMs, each changed alone.
// The other flags of the request, including its limits, stay.
func (d *deviceSet) suggestions(node *packing.Node, pod *packing.Pod) (list []string) {
	c := pod.Request.Containers[0]
	try := func(flag string, now, vgpus int64, set func(s *share.Share, v int64)) {
		most := sort.Search(int(now), func(i int) bool { // whatever fits also fits if it is smaller
			smaller := c
			set(&smaller.Share, int64(i)+1)
			return !d.admits(node, pod, smaller)
		})
		if most > 0 {
			list = append(list, fmt.Sprintf(flag, int64(most)*vgpus))
		}
	}
	all := int64(c.VGPUs)
	try("--sm %d", int64(c.Share.SMRequest/10), all, func(s *share.Share, v int64) {
		if s.SMLimit == s.SMRequest {
			s.SMLimit = share.PerMille(v * 10)
		}
		s.SMRequest = share.PerMille(v * 10)
	})
	try("--quota %d", int64(c.Share.QuotaRequest/10), 1, func(s *share.Share, v int64) {
		if s.QuotaLimit == s.QuotaRequest {
			s.QuotaLimit = share.PerMille(v * 10)
		}
		s.QuotaRequest = share.PerMille(v * 10)
	})
	try("--mem %dMi", int64(c.Share.Memory/share.MiB), all, func(s *share.Share, v int64) {
		s.Memory = share.Bytes(v) * share.MiB
	})
	if c.Share.SMLimit > c.Share.SMRequest {
		try("--sm-limit %d", int64(c.Share.SMLimit/10), 1, func(s *share.Share, v int64) {
			s.SMLimit = max(share.PerMille(v*10), s.SMRequest)
		})
	}
	return list
}

// admits reports whether a request would fit on the node if it had the given container.
func (d *deviceSet) admits(node *packing.Node, pod *packing.Pod, c share.Container) bool {
	try := *pod
	try.Request.Containers = []share.Container{c}
	if try.Request.Validate() != nil || try.Request.ValidateDevices() != nil {
		return false
	}
	_, _, refusal := d.packer.Place(node, &try)
	return refusal == packing.Admitted
}
