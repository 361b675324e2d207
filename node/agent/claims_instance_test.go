package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestClaimOfInstance: a claim for a MIG instance gets exactly that instance of the GPU, either alone or shared with others
// through MPS.
func TestClaimOfInstance(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *Options) {
		o.Config.Tenancy, o.Config.Kubernetes.ResourceClaims = "mixed", []string{"GPU-2"}
		o.Config.Kubernetes.Driver = filepath.Join(o.Config.Directory, "driver.yaml")
		o.Capabilities = cdi.Capabilities(filepath.Join(o.Config.Directory, "mig-minors"))
	})
	r.write("driver.yaml", "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\ndevices: []\n")
	r.write("mig-minors", "gpu0/gi0/access 12\ngpu0/gi0/ci0/access 13\n")
	r.write("devices.yaml", devices+"- {uuid: GPU-2, model: A100, sms: 108, memoryMiB: 81920, mig: ["+
		"{uuid: MIG-0, profile: 1g.10gb, sms: 14, memoryMiB: 9728}, {uuid: MIG-1, profile: 1g.10gb, sms: 14, memoryMiB: 9728}]}\n")
	r.wait("the instances", func() bool { return len(r.OfferedToClaims().Slices) == 2 })
	for _, test := range []struct {
		pod, slice string
		sm         share.PerMille
		memory     share.Bytes
	}{{"a", "MIG-0", 500, 4 << 30}, {"b", "MIG-0", 500, 4 << 30}, {"c", "MIG-1", 1000, 9728 << 20}} {
		_, device, err := r.prepare(test.pod, test.slice, test.sm, test.memory)
		if err != nil {
			t.Fatal(err)
		}
		spec := r.specOf(device)
		if !strings.Contains(spec, "CUDA_VISIBLE_DEVICES="+test.slice+`"`) || strings.Count(spec, `"/dev/nvidia`) != 4 {
			t.Errorf("%s: %s", test.pod, spec)
		}
		if limited := strings.Contains(spec, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"); limited != (test.sm < share.Whole) {
			t.Errorf("%s: limited by MPS: %t: %s", test.pod, limited, spec)
		}
	}
}
