package ondemand

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// offer lists the instances and places of a device. One whose are not known has a fault, and is not offered whole.
func (g *device) offer(d *gpu.Device) found {
	divided, listed := d.MIG, *d
	d.MIG, d.Instances = true, nil
	now, err := g.look()
	if err == nil && !divided {
		err = partition.ErrNoMIG
	}
	if err != nil {
		d.Fault = cmp.Or(d.Fault, err.Error())
		return found{}
	}
	d.Instances = append(now.theirs(listed.Instances), g.free(now, d.Memory, now.faults(listed))...)
	return now
}

// free lists the places that others leave: those that are offered, and those that containers have. That of an instance that has failed,
// idle or not, has failed with it.
func (g *device) free(now found, all share.Bytes, faults map[string]string) (places []gpu.Instance) {
	ours := map[mig.Instance]string{}
	for _, i := range now.ours {
		ours[i.Instance] = i.UUID
	}
	for _, at := range g.places() {
		id := place(g.UUID, at)
		if (g.offers(at.Profile) || slices.Contains(g.held, id)) && room(at)&now.taken() == 0 {
			places = append(places, gpu.Instance{
				UUID: id, Profile: at.Profile.Name, SMs: at.Profile.SMs, Memory: memory(at.Profile, all, g.model),
				MemorySlices: room(at), Fault: faults[ours[at]],
			})
		}
	}
	return places
}

// faults are those of the instances of a device, by UUID. One that gshare made and the driver does not list could not be read.
func (f found) faults(listed gpu.Device) map[string]string {
	faults := map[string]string{}
	for _, i := range f.ours {
		faults[i.UUID] = listed.Incomplete
	}
	for _, i := range listed.Instances {
		faults[i.UUID] = i.Fault
	}
	delete(faults, "") // of places without an instance
	return faults
}

// taken is the room of what others made.
func (f found) taken() (all uint8) {
	for _, o := range f.others {
		all |= room(o.Instance)
	}
	return all
}

// theirs leaves of a list what others made.
func (f found) theirs(listed []gpu.Instance) []gpu.Instance {
	return slices.DeleteFunc(slices.Clone(listed), func(i gpu.Instance) bool {
		return !slices.ContainsFunc(f.others, func(o partition.Instance) bool { return o.UUID == i.UUID })
	})
}
