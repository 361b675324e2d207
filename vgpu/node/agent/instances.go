package agent

import (
	"context"

	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/injection"
)

// uuid is what programs and the driver call a slice. Only of one whose instance is made on demand it is not its ID; it is empty
// where that instance is not there, or not known yet.
func (a *Agent) uuid(slice string) string {
	if a.OnDemand == nil {
		return slice
	}
	return a.OnDemand.UUID(slice)
}

// device says which device nodes belong to a slice. The caller holds the lock.
func (a *Agent) device(slice string) injection.Device {
	found := injection.Device{UUID: a.uuid(slice)}
	devices := a.devices
	if a.OnDemand != nil {
		if d, ok := a.OnDemand.Listed(slice); ok {
			devices = []gpu.Device{d}
		}
	}
	for _, d := range devices {
		for _, i := range d.Instances {
			if i.UUID == found.UUID {
				found.MIG = &cdi.Instance{Minor: d.Minor, GPU: i.GPU, Compute: i.Compute}
			}
		}
	}
	return found
}

// makeInstances says why the instances for a container are not there yet.
func (a *Agent) makeInstances(g *grant.Grant) *grant.Refusal {
	for _, v := range g.VGPUs {
		if a.OnDemand == nil {
			break
		}
		if err := a.OnDemand.Make(v.Slice); err != nil {
			return grant.Shut(err)
		}
	}
	return nil
}

// openInstances begins to open the GPUs whose instances are made on demand; the channel is closed when all are. Nothing waits for
// a driver that hangs but the containers on such a GPU: those that an earlier agent has granted are served again when it is open.
func (a *Agent) openInstances(ctx context.Context) (all <-chan struct{}) {
	if a.OnDemand == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return a.OnDemand.Open(ctx, a.Config.Kubernetes.HealthPeriod.Duration, func(uuid string, err error) {
		if err != nil {
			a.Log.Error("open a GPU whose instances are made on demand", "gpu", uuid, "err", err)
			return
		}
		for _, p := range a.OnDemand.Missing(uuid) { // another GPU of the node may have it
			a.Log.Warn("a GPU has no place of a profile of kubernetes.onDemandProfiles", "gpu", uuid, "profile", p)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.resume(); err != nil {
			a.Log.Error("serve containers again", "gpu", uuid, "err", err)
		}
		signal(a.appeared)
	})
}

// holdInstances keeps the instances that containers have. The caller holds the lock.
func (a *Agent) holdInstances() {
	if a.OnDemand == nil {
		return
	}
	var held []string
	for _, g := range a.book.All() {
		for _, v := range g.VGPUs {
			held = append(held, v.Slice)
		}
	}
	a.OnDemand.Hold(held)
}

// dropped lists the places that nobody new may come to.
func (a *Agent) dropped() []string {
	if a.OnDemand == nil {
		return nil
	}
	return a.OnDemand.Dropped()
}

// byUUID names the slices of processes as MPS does.
func (a *Agent) byUUID(processes []gpu.Process) []gpu.Process {
	named := make([]gpu.Process, len(processes))
	for i, p := range processes {
		named[i] = gpu.Process{PID: p.PID, Slice: a.uuid(p.Slice)}
	}
	return named
}
