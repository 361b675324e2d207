package agent

import (
	"sync/atomic"
	"testing"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/node/gpu/nvml"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// hangingNVML is an NVML library with two GPUs. Calls to GPU-1 hang until the channel is closed, if there is one.
type hangingNVML struct {
	hang   atomic.Pointer[chan struct{}]
	waits  atomic.Int64 // calls that have begun to
	faulty atomic.Bool
}

func (h *hangingNVML) library() library.Interface {
	devices := []library.Device{h.device("GPU-0"), h.device("GPU-1")}
	return &mock.Interface{
		InitFunc:                   func() library.Return { return library.SUCCESS },
		ShutdownFunc:               func() library.Return { return library.SUCCESS },
		EventSetCreateFunc:         func() (library.EventSet, library.Return) { return nil, library.ERROR_NOT_SUPPORTED },
		SystemGetDriverVersionFunc: func() (string, library.Return) { return "580.65.06", library.SUCCESS },
		DeviceGetCountFunc:         func() (int, library.Return) { return len(devices), library.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (library.Device, library.Return) {
			return devices[i], library.SUCCESS
		},
	}
}

func (h *hangingNVML) device(uuid string) library.Device {
	none := func() ([]library.ProcessInfo, library.Return) { return nil, library.SUCCESS }
	return &mock.Device{
		GetUUIDFunc: func() (string, library.Return) { return uuid, library.SUCCESS },
		GetNameFunc: func() (string, library.Return) { return "NVIDIA A100-SXM4-80GB", library.SUCCESS },
		GetMemoryInfo_v2Func: func() (library.Memory_v2, library.Return) {
			if hang := h.hang.Load(); hang != nil && uuid == "GPU-1" {
				h.waits.Add(1)
				<-*hang
			}
			return library.Memory_v2{Total: 80 << 30}, library.SUCCESS
		},
		GetNumGpuCoresFunc:           func() (int, library.Return) { return 6912, library.SUCCESS },
		GetCudaComputeCapabilityFunc: func() (int, int, library.Return) { return 8, 0, library.SUCCESS },
		GetRemappedRowsFunc: func() (int, int, bool, bool, library.Return) {
			return 0, 0, false, h.faulty.Load() && uuid == "GPU-1", library.SUCCESS
		},
		GetMinorNumberFunc:    func() (int, library.Return) { return 0, library.SUCCESS },
		GetMigModeFunc:        func() (int, int, library.Return) { return 0, 0, library.ERROR_NOT_SUPPORTED },
		GetMemoryAffinityFunc: func(int, library.AffinityScope) ([]uint, library.Return) { return nil, library.ERROR_NOT_SUPPORTED },
		GetP2PStatusFunc: func(library.Device, library.GpuP2PCapsIndex) (library.GpuP2PStatus, library.Return) {
			return library.P2P_STATUS_NOT_SUPPORTED, library.SUCCESS
		},
		GetComputeRunningProcessesFunc:    none,
		GetMPSComputeRunningProcessesFunc: none,
		GetGraphicsRunningProcessesFunc:   none,
	}
}

// offers reports whether the node publishes a slice as one that takes pods.
func (r *fixture) offers(slice string) bool {
	inv, err := kube.DecodeInventory(r.published())
	for _, s := range inv.Slices {
		if err == nil && s.ID == slice {
			return s.Healthy
		}
	}
	return false
}

// TestHungDevices: while the driver hangs at listing devices, containers start and end, slices are drained, and a new agent serves. Its
// late answer is used.
func TestHungDevices(t *testing.T) {
	t.Parallel()
	h := &hangingNVML{}
	drained := ""
	r := newFixture(t, func(o *Options) {
		o.Source = nvml.New(h.library())
		if drained != "" {
			o.Config.Kubernetes.Drain = []string{drained}
		}
	})
	r.wait("inventory", func() bool { return r.offers("GPU-1") })
	hang := make(chan struct{})
	h.hang.Store(&hang)
	r.wait("a call that hangs", func() bool { return h.waits.Load() > 0 })
	r.mustCreate("a", r.pod("a", "GPU-0", 30, 50), "GPU-0") // the call hangs until the end of the test: admission does not wait for it
	r.stop()
	drained = "GPU-0"
	r.start() // it goes by what was published
	r.mustCreate("b", r.pod("b", "GPU-1", 30, 50), "GPU-1")
	r.wait("eviction", func() bool {
		r.cluster.mu.Lock()
		defer r.cluster.mu.Unlock()
		return len(r.cluster.evicted) > 0
	})
	r.kubelet.RemovePod("a")
	r.wait("release", func() bool { return len(r.grants()) == 1 })
	h.faulty.Store(true)
	h.hang.Store(nil)
	close(hang)
	r.wait("the fault", func() bool { return !r.offers("GPU-1") })
}
