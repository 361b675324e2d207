package deviceplugin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/node/deviceid"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
)

// node answers as simply as it can.
type node struct {
	mu        sync.Mutex // guards the following
	deviceIDs []string
	changed   chan struct{}
	started   [][]string
	refuse    error
}

func newNode(shares ...int) *node {
	return &node{deviceIDs: deviceid.All(shares), changed: make(chan struct{})}
}

func (n *node) DeviceIDs() ([]string, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deviceIDs, n.changed
}

func (n *node) set(shares ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deviceIDs = deviceid.All(shares)
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) Prefer(_ context.Context, available, must []string, count int) []string {
	return deviceid.Prefer(available, must, []int{1}, count)
}

func (n *node) Allocate(deviceIDs []string) string {
	return "gshare.dev/grant=" + deviceid.Key(deviceIDs)
}

func (n *node) PreStart(_ context.Context, deviceIDs []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.started = append(n.started, deviceIDs)
	return n.refuse
}

const name = "gshare/vgpu"

func run(t *testing.T, n deviceplugin.Node) (*fakekubelet.Kubelet, context.Context) {
	t.Helper()
	k := fakekubelet.New(t.TempDir(), name)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	start(t, k.DevicePlugins(), n)
	return k, ctx
}

// start runs the plugin until the test ends.
func start(t *testing.T, directory string, n deviceplugin.Node) {
	p := &deviceplugin.Plugin{Directory: directory, Resource: name, Node: n, Log: slog.New(slog.DiscardHandler), Registered: func(bool) {}}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { p.Run(running); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
}

func TestLife(t *testing.T) {
	n := newNode(2, 2)
	k, ctx := run(t, n)
	if err := k.WaitDevices(ctx, 4); err != nil {
		t.Fatal(err)
	}
	cdi, err := k.Admit(ctx, "uid", "c", 2)
	if err != nil {
		t.Fatal(err)
	}
	held := k.Held("uid", "c")
	if held[0] != "g1-0" || cdi != "gshare.dev/grant="+deviceid.Key(held) {
		t.Errorf("held %v behind %s; want the preferred one first", held, cdi)
	}
	if err := k.Create(ctx, "uid", "c"); err != nil || len(n.started) != 1 {
		t.Errorf("start: %v, %v", err, n.started)
	}
	n.refuse = errors.New("no such luck")
	if err := k.Create(ctx, "uid", "c"); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("a refusal reaches the kubelet as %v", err)
	}
	n.set(2, 2, 1)
	if err := k.WaitDevices(ctx, 5); err != nil {
		t.Error(err)
	}
}

// slowNode is a node whose Allocate waits.
type slowNode struct {
	*node
	called, answer chan struct{}
}

func (n slowNode) Allocate(deviceIDs []string) string {
	close(n.called)
	<-n.answer
	return n.node.Allocate(deviceIDs)
}

// TestEndsDuringCall: a call in progress is answered though the plugin is told to end, as otherwise the kubelet would fail the pod.
func TestEndsDuringCall(t *testing.T) {
	t.Parallel()
	k, ctx := startKubelet(t)
	n := slowNode{newNode(1), make(chan struct{}), make(chan struct{})}
	registered := make(chan bool, 2)
	p := &deviceplugin.Plugin{
		Directory: k.DevicePlugins(), Resource: name, Node: n, Log: slog.New(slog.DiscardHandler), Registered: func(now bool) { registered <- now },
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() { p.Run(running); close(ended) }()
	await(ctx, t, "the registration", registered, true)
	if err := k.WaitDevices(ctx, 1); err != nil {
		t.Fatal(err)
	}
	admitted := make(chan error, 1)
	go func() { _, err := k.Admit(ctx, "uid", "c", 1); admitted <- err }()
	<-n.called
	time.AfterFunc(300*time.Millisecond, func() { close(n.answer) }) // longer than the plugin waits for further calls
	stop()
	<-ended
	if err := <-admitted; err != nil {
		t.Error(err)
	}
}

// TestKubeletRestarts: with each kubelet the plugin registers again, on a socket of its own, and leaves none behind.
func TestKubeletRestarts(t *testing.T) {
	k, ctx := run(t, newNode(3))
	for range 5 {
		if err := k.WaitDevices(ctx, 3); err != nil {
			t.Fatal(err)
		}
		k.Kill()
		if err := k.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.WaitDevices(ctx, 3); err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(k.DevicePlugins(), "gshare-*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Errorf("sockets %v (%v), want the one in use", sockets, err)
	}
}

// TestKubeletComesLater: an agent may be there first.
func TestKubeletComesLater(t *testing.T) {
	n := newNode(1)
	k, ctx := run(t, n)
	k.Kill()
	if err := os.RemoveAll(k.DevicePlugins()); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	if err := k.WaitDevices(ctx, 1); err != nil {
		t.Fatal(err)
	}
}

// sweeping is a kubelet that empties its directory when it is registered with, and then dials what was there.
type sweeping struct {
	api.UnimplementedRegistrationServer
	directory string
	ended     chan error // why each registration was given up
}

func (s sweeping) Register(ctx context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	if err := os.Remove(filepath.Join(s.directory, r.Endpoint)); err != nil {
		return nil, err
	}
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

// TestSweptSocket: a registration whose socket the kubelet has removed is given up at once, not at the end of its patience.
func TestSweptSocket(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	kubelet, ended := grpc.NewServer(), make(chan error)
	api.RegisterRegistrationServer(kubelet, sweeping{directory: dir, ended: ended})
	go func() { _ = kubelet.Serve(listener) }() // ends with Stop
	t.Cleanup(kubelet.Stop)
	start(t, dir, newNode(1))
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("given up with %v, want it cancelled", err)
		}
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"gshare-abc.sock", "gshare-def.sock", "other.sock", "kubelet.sock"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&deviceplugin.Plugin{Directory: dir}).Sweep(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v are left (%v)", left, err)
	}
}

// TestMessageSize: sixteen GPUs of seven MIG instances each, sixteen device IDs an instance.
func TestMessageSize(t *testing.T) {
	shares := make([]int, 16*7)
	for i := range shares {
		shares[i] = 16
	}
	n := newNode(shares...)
	k, ctx := run(t, n)
	if err := k.WaitDevices(ctx, 16*7*16); err != nil {
		t.Fatal(err)
	}
	m := &api.ListAndWatchResponse{}
	for _, id := range k.Devices() {
		m.Devices = append(m.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if size := proto.Size(m); size > 256<<10 {
		t.Errorf("ListAndWatch of %d bytes", size)
	} else {
		t.Logf("ListAndWatch of %d bytes", size)
	}
}
