package standalone

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/node/gpu"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestContextReserve: runs that share a device get all but what is kept for contexts, and so does one that is alone on it.
func TestContextReserve(t *testing.T) {
	n := newNode(t, tempDir(t), func(o *Options) { o.Config = config.Configuration{Directory: o.Config.Directory}.WithDefaults() })
	const whole = 79 << 10 // MiB, of 80 GiB
	for _, d := range n.Status().Devices {
		if d.Memory != whole*share.MiB {
			t.Errorf("%s has %d MiB for shares", d.UUID, d.Memory/share.MiB)
		}
	}
	mustAdmit(t, n, newProgram(t), ask(100, 100, whole))
	mustAdmit(t, n, newProgram(t), ask(50, 100, whole/2))
	if _, refusal := newProgram(t).admit(n, ask(50, 100, whole/2+1)); refusal == nil || refusal.Field != share.FieldMemory {
		t.Errorf("a MiB more than is left: %+v", refusal)
	}
	mustAdmit(t, n, newProgram(t), ask(50, 100, whole/2))
}

// TestMIG: instances are used only by who asks for one, and by a profile only those of that.
func TestMIG(t *testing.T) {
	small, large := gpu.Instance{UUID: "MIG-0", Profile: "1g.10gb", SMs: 14, Memory: 9 * gib}, gpu.Instance{UUID: "MIG-1", Profile: "3g.40gb", SMs: 42, Memory: 39 * gib}
	n := newNode(t, tempDir(t), func(o *Options) {
		o.Devices = append(o.Devices[:1], gpu.Device{
			UUID: "GPU-1", Model: "A100", SMs: 108, Memory: 80 * gib, MIG: true, Instances: []gpu.Instance{small, large},
		})
	})
	on := func(slice string, sm, mib int64) (device, sms, refused string) {
		r := ask(sm, 100, mib)
		r.Slice = slice
		grant, refusal := newProgram(t).admit(n, r)
		if refusal != nil {
			return "", "", refusal.Reason
		}
		i := slices.IndexFunc(n.Status().Runs, func(r control.Run) bool { return r.ID == grant.ID })
		return n.Status().Runs[i].VGPUs[0].Device, grant.Enforcement.SMs, ""
	}
	if device, sms, _ := on("1g.10gb", 50, 1024); device != "MIG-0" || sms != "MPS, 6 of 14 SMs, inside of MIG 1g.10gb" { // MPS inside of it
		t.Errorf("1g.10gb: %s, %s", device, sms)
	}
	if device, _, _ := on("mig", 100, 20480); device != "MIG-1" {
		t.Errorf("mig, 20 GiB: %s", device)
	}
	if device, _, _ := on("", 100, 1024); device != "GPU-0" {
		t.Errorf("a GPU: %s", device)
	}
	if _, _, refused := on("", 50, 1024); refused == "" {
		t.Error("an instance was given to who asked for a GPU")
	}
	if _, _, refused := on("2g.20gb", 50, 1024); refused != "no slice of the requested kind" {
		t.Errorf("2g.20gb: %s", refused)
	}
	if devices := n.Status().Devices; len(devices) != 3 || devices[1].UUID != "MIG-0" || devices[1].Profile != "1g.10gb" {
		t.Errorf("%+v", devices)
	}
}
