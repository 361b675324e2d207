package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/deviceid"
)

// ProxyOptions configures a Proxy.
type ProxyOptions struct {
	Directory string // contains the ProxyServer's socket
	Plugins   string // the kubelet's directory for device plugins
	Resource  string
	CDI       cdi.Directory
	Log       *slog.Logger
}

// Proxy holds the connection between kubelet and device plugin in a process of its own, so that no pod fails because the agent is away. It
// advertises the device IDs that the agent sent last, and answers Allocate itself. It forwards PreStartContainer to the agent, and waits for
// the agent if it is away.
type Proxy struct {
	ProxyOptions

	agent   api.DevicePluginClient
	telling sync.Mutex // serializes tell: the agent must not be told of an Allocate after a PreStart for the same device IDs

	metrics *proxyMetrics

	mu        sync.Mutex // guards the following
	deviceIDs []string
	changed   chan struct{} // closed and replaced when the device IDs change
	untold    [][]string    // device IDs of each Allocate of which the agent has not been told, without duplicates
	watched   bool          // by the kubelet
	refused   bool          // by the agent, because it speaks another protocol version
	restream  func()        // ends the stream to the agent; the metadata of the next one tells whether the kubelet watches
}

// NewProxy returns a proxy that does nothing before Run.
func NewProxy(o ProxyOptions) *Proxy {
	return &Proxy{ProxyOptions: o, metrics: newProxyMetrics(), changed: make(chan struct{})}
}

const (
	// patience is how long PreStart waits for the agent: 2 s less than the kubelet waits for PreStart (30 s).
	patience = (api.KubeletPreStartContainerRPCTimeoutInSecs - 2) * time.Second
	// reconnectEvery is the pause between attempts to reach an agent that is away, and refusedPause is the pause after the agent has refused
	// the protocol.
	reconnectEvery = 50 * time.Millisecond
	refusedPause   = time.Second
	// tellPatience is how long Allocate tries to tell the agent, in the background. After that it is left to PreStart.
	tellPatience = 5 * time.Second
	// overlap is how long a leaving proxy stays registered after the agent may register, for calls that are in progress.
	overlap = 2 * time.Second
)

// Run serves the kubelet until the context ends. It registers once the agent has sent its device IDs. When the context ends, the agent
// registers in its place before Run returns.
func (f *Proxy) Run(ctx context.Context) error {
	if err := makePrivate(f.Directory); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(f.Directory, agentSocket), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: reconnectEvery, Multiplier: 1, MaxDelay: reconnectEvery}, MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	f.agent = api.NewDevicePluginClient(conn)
	plugin := f.plugin()
	if err := plugin.Sweep(); err != nil {
		f.Log.Warn("failed to remove sockets of earlier device plugins", "error", err)
	}
	registration := registration{proxy: f, plugin: plugin}
	defer registration.leave()
	logged := codes.Unknown // the status logged last; OK: connected
	received := func(ctx context.Context) error {
		if logged != codes.OK {
			f.Log.Info("connected to the agent")
			logged = codes.OK
			f.metrics.connected.Set(1)
		}
		return registration.begin(ctx)
	}
	for ctx.Err() == nil {
		err := f.followAgent(ctx, received)
		code := status.Code(err)
		if code != codes.Canceled { // Canceled: a new stream follows at once, to tell whether the kubelet watches
			f.metrics.connected.Set(0)
		}
		if code != logged && ctx.Err() == nil && code != codes.Canceled { // logged once for each reason
			f.Log.Warn("not connected to the agent: containers wait for it", "error", status.Convert(err).Message())
			logged = code
		}
		pause := reconnectEvery
		f.setRefused(code == codes.FailedPrecondition)
		if code == codes.FailedPrecondition { // the agent speaks another protocol version and registers itself
			registration.leave()
			pause = refusedPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// followAgent receives the agent's device IDs until the connection ends, and calls received after each message.
func (f *Proxy) followAgent(ctx context.Context, received func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.agent.ListAndWatch(f.streamContext(ctx, cancel), &api.Empty{})
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		f.setDeviceIDs(answer.Devices)
		if err := received(ctx); err != nil {
			return err
		}
	}
}

// streamContext returns a context whose metadata tells whether the kubelet watches the proxy. end is called when that changes.
func (f *Proxy) streamContext(ctx context.Context, end func()) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restream = end
	if f.watched {
		ctx = metadata.AppendToOutgoingContext(ctx, watchedKey, "true")
	}
	return withProtocol(ctx)
}

func withProtocol(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, protocolKey, protocol)
}

func (f *Proxy) setRefused(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = yes
}

func (f *Proxy) plugin() *Plugin {
	return &Plugin{Directory: f.Plugins, Resource: f.Resource, Node: f, Log: f.Log, Registered: func(yes bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watched = yes
		f.metrics.setRegistered(yes)
		f.restream()
	}}
}

// setDeviceIDs replaces the advertised device IDs.
func (f *Proxy) setDeviceIDs(devices []*api.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.deviceIDs
	f.deviceIDs = nil
	for _, d := range devices {
		f.deviceIDs = append(f.deviceIDs, d.ID)
	}
	if slices.Equal(old, f.deviceIDs) {
		return
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// DeviceIDs returns the device IDs that the agent sent last, even if it is away now, and a channel that is closed when they change.
func (f *Proxy) DeviceIDs() (deviceIDs []string, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deviceIDs, f.changed
}

// Prefer returns any n of the available device IDs. It does not ask the agent: which device IDs a container gets matters only to readers of the
// kubelet's records. And calls must be short, as the kubelet fails a pod if the proxy is killed during one.
func (f *Proxy) Prefer(_ context.Context, available, must []string, n int) []string {
	return deviceid.Prefer(available, must, nil, n)
}

// Allocate returns the CDI device name of the device IDs without waiting for the agent. It removes the CDI file that an earlier owner of the
// device IDs left, so that no container can be created with the earlier owner's devices.
func (f *Proxy) Allocate(deviceIDs []string) string {
	key := deviceid.Key(deviceIDs)
	if err := f.CDI.Remove(key); err != nil {
		f.Log.Error("failed to remove an old CDI file", "deviceIDs", deviceIDs, "error", err)
	}
	f.addUntold(deviceIDs)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
		defer cancel()
		_ = f.tell(ctx) // if this fails, PreStart tells the agent
	}()
	return cdi.Name(key)
}

func (f *Proxy) addUntold(sets ...[]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, deviceIDs := range sets {
		if !slices.ContainsFunc(f.untold, func(other []string) bool { return slices.Equal(other, deviceIDs) }) {
			f.untold = append(f.untold, deviceIDs)
		}
	}
}

// takeUntold returns all sets of device IDs of which the agent has not been told, and forgets them.
func (f *Proxy) takeUntold() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.untold
	f.untold = nil
	return taken
}

// tell tells the agent which device IDs the kubelet has allocated again, so that the agent forgets their previous owners.
func (f *Proxy) tell(ctx context.Context) error {
	f.telling.Lock()
	defer f.telling.Unlock()
	untold := f.takeUntold()
	if len(untold) == 0 {
		return nil
	}
	request := &api.AllocateRequest{}
	for _, deviceIDs := range untold {
		request.ContainerRequests = append(request.ContainerRequests, &api.ContainerAllocateRequest{DevicesIds: deviceIDs})
	}
	_, err := f.agent.Allocate(withProtocol(ctx), request)
	if err != nil {
		f.addUntold(untold...)
	}
	return err
}

// PreStart forwards the call to the agent. If the agent is away, it waits for almost as long as the kubelet does.
func (f *Proxy) PreStart(ctx context.Context, deviceIDs []string) error {
	ctx, cancel := context.WithTimeout(withProtocol(ctx), patience)
	defer cancel()
	err := f.forwardPreStart(ctx, deviceIDs)
	if status.Code(err) != codes.Unavailable {
		return f.explain(ctx, err)
	}
	f.metrics.waiting.Inc()
	defer f.metrics.waiting.Dec()
	began := time.Now()
	for status.Code(err) == codes.Unavailable && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(reconnectEvery):
			err = f.forwardPreStart(ctx, deviceIDs)
		}
	}
	f.metrics.waits.Observe(time.Since(began).Seconds())
	f.Log.Info("a container waited for the agent", "deviceIDs", deviceIDs, "waited", time.Since(began), "error", err)
	return f.explain(ctx, err)
}

// explain returns the error of a PreStart. If the context has ended, it says that the agent did not answer.
func (f *Proxy) explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return status.Errorf(codes.Unavailable, "the gshare agent of this node has not answered within %v: %s", patience, status.Convert(err).Message())
}

func (f *Proxy) forwardPreStart(ctx context.Context, deviceIDs []string) error {
	if err := f.tell(ctx); err != nil {
		return err
	}
	_, err := f.agent.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: deviceIDs})
	return err
}

// registration is a proxy's registration with the kubelet, which begins and ends in agreement with the agent.
type registration struct {
	proxy  *Proxy
	plugin *Plugin
	lock   *os.File // held while registered; nil: not registered
	stop   context.CancelFunc
	ended  chan struct{}
}

// begin registers with the kubelet, unless the proxy is registered already. From then on agents do not register.
func (r *registration) begin(ctx context.Context) error {
	if r.lock != nil {
		return nil
	}
	lock, err := flock(filepath.Join(r.proxy.Directory, servingLock), unix.LOCK_SH)
	if err != nil {
		return err
	}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.lock, r.ended = lock, make(chan struct{})
	go func() {
		defer close(r.ended)
		r.plugin.Run(ctx)
	}()
	return nil
}

// leave ends the registration. It first lets the agent register, so that the kubelet always has a plugin.
func (r *registration) leave() {
	if r.lock == nil {
		return
	}
	r.lock.Close()
	time.Sleep(overlap)
	r.stop()
	<-r.ended
	r.lock = nil
}

// flock opens and locks a file. The lock is held until the file is closed or the process ends.
func flock(name string, how int) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		switch err := unix.Flock(int(file.Fd()), how); {
		case err == nil:
			return file, nil
		case !errors.Is(err, unix.EINTR):
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// makePrivate creates a directory that only its owner may enter.
func makePrivate(directory string) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	return os.Chmod(directory, 0o700)
}
