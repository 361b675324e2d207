package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/node/cdi"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// startProxy runs a proxy on the agent's node, and returns once the agent knows that the kubelet watches the proxy.
func (r *fixture) startProxy() {
	r.t.Helper()
	f := deviceplugin.NewProxy(deviceplugin.ProxyOptions{
		Directory: filepath.Join(r.dir, config.ProxyDirectory), Plugins: r.kubelet.DevicePlugins(), Resource: string(kube.ResourceVGPU),
		CDI: cdi.Directory(filepath.Join(r.dir, "cdi")), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	r.wait("the proxy", func() bool { return r.metrics.proxies.Load() == 1 })
}

// TestProxy: a pod that arrives while the agent is away is admitted, and gets its share from the next agent.
func TestProxy(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.startProxy()
	r.stop()
	r.kubelet.AddPod(placed("a", "GPU-1", 50, 50))
	cdi := r.admitted("a")
	r.start()
	r.mustCreate("a", cdi, "GPU-1")
	if r.metrics.registered.Load() != 0 || r.ready() != nil {
		t.Errorf("beside a proxy the agent is registered %d times; ready: %v", r.metrics.registered.Load(), r.ready())
	}
}

// TestProxyReusesDeviceID: a pod to which the proxy gives a used device ID gets nothing of the previous owner's share, even though the kubelet
// still lists the previous owner.
func TestProxyReusesDeviceID(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.startProxy()
	r.mustCreate("a", r.pod("a", "GPU-0", 50, 50), "GPU-0")
	deviceIDs := r.kubelet.Held("a", "main")
	r.kubelet.EndPod("a", v1.PodSucceeded)
	cdi := r.pod("b", "GPU-1", 50, 50)
	if again := r.kubelet.Held("b", "main"); !slices.Equal(again, deviceIDs) {
		t.Fatalf("b holds %v, not a's %v: the test shows nothing", again, deviceIDs)
	}
	r.mustCreate("b", cdi, "GPU-1")
}

// TestUntoldDeviceID: if the proxy could not tell the agent about a device ID before the kubelet switches to the agent's own plugin, the device ID is
// not attributed to its previous owner.
func TestUntoldDeviceID(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.startProxy()
	r.pod("a", "GPU-0", 50, 50)
	deviceIDs := r.kubelet.Held("a", "main")
	if c, err := r.Records.Claim(r.ctx, deviceIDs); err != nil || c.Pod.UID != "a" {
		t.Fatal(c, err)
	}
	r.kubelet.RemovePod("a")
	r.kubelet.AddPod(placed("a", "GPU-0", 50, 50)) // it is still listed, but has given its device ID back
	r.kubelet.AddPod(placed("b", "GPU-1", 50, 50))
	r.kubelet.Give("b", "main", deviceIDs) // without Allocate
	if err := r.plugin().Node.PreStart(r.ctx, deviceIDs); err != nil {
		t.Fatal(err)
	}
	if got := r.grants(); !slices.Equal(got, []string{"pod-b"}) {
		t.Errorf("grants of %v, want pod-b's", got)
	}
}
