package soak_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/api/load"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/identity"
)

// gatewayCount is the number of gateways. Each owns a part of the functions, and counts the requests of those.
const gatewayCount = 2

// gateways report synthetic load once a second, in the same way as real gateways: first all functions, and then those whose numbers have changed.
type gateways struct {
	mu        sync.Mutex
	random    *rand.Rand
	functions []*demand
	byName    map[string]*demand
	changes   float64 // functions whose load changes, per second
	due       float64
	changed   chan struct{} // closed and replaced every second, and when a pod is drained
}

// demand is the load of a function.
type demand struct {
	rate    float64            // requests per second
	raised  bool               // needs one replica more than at its lowest
	load    *load.FunctionLoad // never modified, only replaced
	recent  []uint64           // requests in each of the last seconds, oldest first
	drained map[string]bool    // names of pods
	version int                // incremented whenever load is replaced
	drains  int                // incremented whenever drained changes
}

// replicasOf returns how many replicas the initial load of a function needs: 3 on average.
func replicasOf(n int) int {
	if raised(n) {
		return 2 + n%4
	}
	return 1 + n%4
}

func raised(n int) bool { return n/4%2 == 1 }

// rateOf returns a rate, in requests per second, that needs the given number of replicas: half a replica less than their capacity.
func rateOf(replicas int) float64 { return (float64(replicas) - 0.5) * capacity }

// startGateways starts gateways and announces them to the controller.
func startGateways(ctx context.Context, t *testing.T, c clients, certificates string) *gateways {
	t.Helper()
	g := &gateways{random: rand.New(rand.NewPCG(1, 0)), byName: map[string]*demand{}, changed: make(chan struct{})}
	for n := range *functionCount {
		d := &demand{
			rate: rateOf(replicasOf(n)), raised: raised(n), drained: map[string]bool{},
			load: &load.FunctionLoad{Namespace: namespaceOf(n), Name: nameOf(n), Replicas: uint32(replicasOf(n)), P99Nanos: int64(61 * time.Millisecond)},
		}
		g.functions, g.byName[namespaceOf(n)+"/"+nameOf(n)] = append(g.functions, d), d
	}
	writeCertificates(ctx, t, c, certificates)
	tokens := identity.NewTokens(identity.AudienceReports, identity.ReviewBy(c.core.AuthenticationV1().TokenReviews()))
	for n := range gatewayCount {
		listener, err := net.Listen("tcp", net.JoinHostPort(outsideAddress(t), "0"))
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(
			grpc.Creds(credentials.NewTLS(identity.NewFiles(certificates).TLS())),
			grpc.StreamInterceptor(tokens.Only(identity.Account{Namespace: namespace, Name: account})),
		)
		server.RegisterService(&grpc.ServiceDesc{ServiceName: load.Service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
			StreamName: load.Watch, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return g.watch(s, n) },
		}}}, g)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		if err := c.objects.Create(ctx, endpoints(n, listener.Addr().(*net.TCPAddr))); err != nil {
			t.Fatal(err)
		}
	}
	go g.run(ctx)
	return g
}

// writeCertificates waits for the Secret with the gateways' certificate, which the controller creates, and writes it to files as the kubelet does.
func writeCertificates(ctx context.Context, t *testing.T, c clients, folder string) {
	t.Helper()
	secret := &v1.Secret{}
	found := func(ctx context.Context) (bool, error) {
		return c.objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: identity.GatewaySecret}, secret) == nil, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, found); err != nil {
		t.Fatalf("the controller has made no Secret %s: %v", identity.GatewaySecret, err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range secret.Data {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// outsideAddress returns an address of this machine that is allowed in an EndpointSlice, which those of the loopback device are not.
func outsideAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address beside those of the loopback device, which an EndpointSlice may not have")
	return ""
}

func endpoints(n int, at *net.TCPAddr) *discovery.EndpointSlice {
	name := fmt.Sprintf("gshare-gateway-%d", n)
	return &discovery.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discovery.LabelServiceName: service}},
		AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: new("reports"), Port: new(int32(at.Port))}},
		Endpoints: []discovery.Endpoint{{Addresses: []string{at.IP.String()}, TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}}},
	}
}

// vary makes the load of the given fraction of the functions change every minute from now on.
func (g *gateways) vary(part float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = part * float64(len(g.functions)) / 60
}

// run generates requests until ctx ends.
func (g *gateways) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.second()
		case <-ctx.Done():
			return
		}
	}
}

// second generates the requests of one second. Their number is random, so that most numbers differ from those of the second before.
func (g *gateways) second() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.due += g.changes; g.due >= 1; g.due-- {
		d := g.functions[g.random.IntN(len(g.functions))]
		if d.raised {
			d.rate -= capacity
		} else {
			d.rate += capacity
		}
		d.raised = !d.raised
	}
	for _, d := range g.functions {
		came := uint64(max(0, math.Round(d.rate+math.Sqrt(d.rate)*max(-2, min(2, g.random.NormFloat64())))))
		d.replace(func(l *load.FunctionLoad) {
			l.Arrived, l.Received, l.Answered, l.InTime = l.Arrived+came, l.Received+came, l.Answered+came, l.InTime+came-came/200
			l.P99Nanos += (int64(60*time.Millisecond)-l.P99Nanos)/30 + g.random.Int64N(int64(2*time.Millisecond)) - int64(time.Millisecond)
		})
		d.recent = append(d.recent, came)
		if len(d.recent) > load.Seconds {
			d.recent = slices.Delete(d.recent, 0, 1)
		}
	}
	g.announce()
}

// announce wakes all streams. The caller holds the lock.
func (g *gateways) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// setDrained records that a pod no longer gets requests, or that it is gone.
func (g *gateways) setDrained(pod *v1.Pod, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.byName[pod.Namespace+"/"+pod.Labels[api.LabelFunction]]
	if d == nil || d.drained[pod.Name] != gone {
		return
	}
	if gone {
		delete(d.drained, pod.Name)
	} else {
		d.drained[pod.Name] = true
	}
	d.replace(func(l *load.FunctionLoad) { l.Drained = slices.Sorted(maps.Keys(d.drained)) })
	d.drains++
	g.announce()
}

// replace replaces the load by a modified copy, since streams may still be sending the previous one.
func (d *demand) replace(change func(*load.FunctionLoad)) {
	d.load = proto.CloneOf(d.load)
	change(d.load)
	d.version++
}

// watch streams reports to the controller, as gateway n.
func (g *gateways) watch(stream grpc.ServerStream, n int) error {
	if err := stream.RecvMsg(&load.WatchRequest{}); err != nil {
		return err
	}
	sent := make([]int, len(g.functions))
	for first := true; ; first = false {
		report, changed := g.report(n, first, sent)
		if err := stream.SendMsg(report); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// report returns what has changed since the versions in sent. A gateway that does not own a function has no requests for it, but reports its drained
// pods as well.
func (g *gateways) report(n int, first bool, sent []int) (*load.Report, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &load.Report{Gateway: "gshare-gateway-" + strconv.Itoa(n), Incarnation: "1"}
	for at, d := range g.functions {
		l, version := d.load, d.version
		if at%gatewayCount != n {
			l, version = &load.FunctionLoad{Namespace: l.Namespace, Name: l.Name, Replicas: l.Replicas, Drained: l.Drained}, d.drains
		} else if first {
			l = proto.CloneOf(l)
			l.ReceivedOfSecond = slices.Clone(d.recent)
		}
		if first || sent[at] != version {
			sent[at] = version
			r.Functions = append(r.Functions, l)
		}
	}
	return r, g.changed
}
