package deviceplugin_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/node/cdi"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
)

// agent is an agent's part of the protocol: it serves proxies, and registers itself while there is none.
type agent struct {
	stop       func()
	proxies    chan bool // what Registered is called with
	registered chan bool // the same of its own plugin
}

// startAgent runs an agent until the test ends or stop is called.
func startAgent(t *testing.T, dir string, k *fakekubelet.Kubelet, n deviceplugin.Node) *agent {
	t.Helper()
	a := &agent{proxies: make(chan bool, 100), registered: make(chan bool, 100)}
	log := slog.New(slog.DiscardHandler)
	server := &deviceplugin.ProxyServer{
		Directory: dir, Node: n, Log: log, Registered: func(yes bool) { a.proxies <- yes }, Lost: func() {},
	}
	listener, err := server.Listen()
	if err != nil {
		t.Fatal(err)
	}
	plugin := &deviceplugin.Plugin{
		Directory: k.DevicePlugins(), Resource: name, Node: n, Log: log, Registered: func(yes bool) { a.registered <- yes }, Await: server.WaitAbsent,
	}
	running, cancel := context.WithCancel(context.Background())
	served, ran := make(chan struct{}), make(chan struct{})
	go func() { server.Serve(running, listener); close(served) }()
	go func() { plugin.Run(running); close(ran) }()
	a.stop = func() {
		cancel()
		<-served
		<-ran
	}
	t.Cleanup(a.stop)
	return a
}

// startProxy runs a proxy until the test ends or stop is called; stop returns when it has ended.
func startProxy(t *testing.T, dir string, k *fakekubelet.Kubelet) (stop func()) {
	t.Helper()
	f := deviceplugin.NewProxy(deviceplugin.ProxyOptions{
		Directory: dir, Plugins: k.DevicePlugins(), Resource: name, CDI: cdi.Directory(t.TempDir()), Log: slog.New(slog.DiscardHandler),
	})
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running); close(ended) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func startKubelet(t *testing.T) (k *fakekubelet.Kubelet, ctx context.Context) {
	t.Helper()
	k = fakekubelet.New(t.TempDir(), name)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return k, ctx
}

// await blocks until a channel receives the wanted value.
func await(ctx context.Context, t *testing.T, what string, c <-chan bool, want bool) {
	t.Helper()
	for {
		select {
		case got := <-c:
			if got == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("timeout: %s is not %v", what, want)
		}
	}
}

// TestProxyBridgesAgents: pods are admitted while the agent is away, also by a kubelet that has restarted meanwhile, and their containers
// are created when the next agent is there, which leaves the registration to the proxy.
func TestProxyBridgesAgents(t *testing.T) {
	t.Parallel()
	k, ctx := startKubelet(t)
	dir, n := filepath.Join(t.TempDir(), "proxy"), newNode(2, 2)
	first := startAgent(t, dir, k, n)
	startProxy(t, dir, k)
	await(ctx, t, "the proxy's registration", first.proxies, true)
	first.stop()
	for _, uid := range []string{"a", "b"} {
		if err := k.WaitDevices(ctx, 4); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Admit(ctx, types.UID("uid-"+uid), "c", 1); err != nil {
			t.Fatal(err)
		}
		k.Kill()
		if err := k.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.WaitDevices(ctx, 4); err != nil {
		t.Fatal(err)
	}
	created := make(chan error)
	go func() { created <- k.Create(ctx, "uid-a", "c") }()
	next := startAgent(t, dir, k, n)
	if err := <-created; err != nil || len(n.started) != 1 {
		t.Errorf("creation: %v, started %v", err, n.started)
	}
	await(ctx, t, "the proxy's registration", next.proxies, true)
	select {
	case <-next.registered:
		t.Error("the agent has registered beside a proxy")
	default:
	}
	n.set(2, 2, 1)
	if err := k.WaitDevices(ctx, 5); err != nil {
		t.Error(err)
	}
}

// TestProxyLeaves: a proxy that ends leaves the registration to the agent, and the kubelet has a plugin throughout.
func TestProxyLeaves(t *testing.T) {
	t.Parallel()
	k, ctx := startKubelet(t)
	dir, n := filepath.Join(t.TempDir(), "proxy"), newNode(3)
	a := startAgent(t, dir, k, n)
	await(ctx, t, "the agent's registration", a.registered, true)
	for range 2 {
		stop := startProxy(t, dir, k)
		await(ctx, t, "the proxy's registration", a.proxies, true)
		left := make(chan struct{})
		go func() { stop(); close(left) }()
		for ended := false; !ended; {
			if _, err := k.Admit(ctx, "uid", "c", 1); err != nil {
				t.Fatal(err)
			}
			select {
			case <-left:
				ended = true
			case <-time.After(time.Millisecond): // between two pods
			}
		}
		// The agent's registration is a spare from now on; a kubelet that restarts has none but the present one.
		k.Kill()
		if err := k.Start(); err != nil {
			t.Fatal(err)
		}
		if err := k.WaitDevices(ctx, 3); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProtocols: agent and proxy refuse another version in clear words; the agent then registers itself, and the proxy does not.
func TestProtocols(t *testing.T) {
	t.Parallel()
	k, ctx := startKubelet(t)
	dir, n := filepath.Join(t.TempDir(), "proxy"), newNode(1)
	a := startAgent(t, dir, k, n)
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "agent.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := api.NewDevicePluginClient(conn)
	for version, ctx := range map[string]context.Context{"2": metadata.AppendToOutgoingContext(ctx, "gshare-proxy-protocol", "2"), "": ctx} {
		stream, err := client.ListAndWatch(ctx, &api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		_, streamErr := stream.Recv()
		_, callErr := client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: []string{"g0-0"}})
		for _, err := range []error{streamErr, callErr} {
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `supports version 1 of the proxy's protocol, not "`+version+`"`) {
				t.Errorf("version %q: %v", version, err)
			}
		}
	}
	if len(n.started) > 0 {
		t.Errorf("a start of another protocol was served: %v", n.started)
	}
	await(ctx, t, "the agent's registration", a.registered, true)
}

// TestProxyStepsAside: a proxy that the agent refuses ends its registration, once the agent can have registered.
func TestProxyStepsAside(t *testing.T) {
	t.Parallel()
	k, ctx := startKubelet(t)
	dir, n := filepath.Join(t.TempDir(), "proxy"), newNode(3)
	first := startAgent(t, dir, k, n)
	startProxy(t, dir, k)
	await(ctx, t, "the proxy's registration", first.proxies, true)
	first.stop()
	if err := k.WaitDevices(ctx, 3); err != nil {
		t.Fatal(err)
	}
	// An agent of another protocol, which has fewer device IDs so that the test sees who is registered.
	server := &deviceplugin.ProxyServer{Directory: dir, Node: n, Log: slog.New(slog.DiscardHandler)}
	listener, err := server.Listen()
	if err != nil {
		t.Fatal(err)
	}
	other := grpc.NewServer(grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
		return status.Error(codes.FailedPrecondition, "another protocol")
	}))
	api.RegisterDevicePluginServer(other, api.UnimplementedDevicePluginServer{})
	go func() { _ = other.Serve(listener) }()
	t.Cleanup(other.Stop)
	server.WaitAbsent(ctx)
	if ctx.Err() != nil {
		t.Fatal("the proxy does not leave the registration to the agent")
	}
	if _, err := k.Admit(ctx, "uid", "c", 1); err != nil {
		t.Errorf("the proxy has left before the agent could register: %v", err)
	}
	start(t, k.DevicePlugins(), newNode(2))
	if err := k.WaitDevices(ctx, 2); err != nil {
		t.Fatal(err)
	}
}
