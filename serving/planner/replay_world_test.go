package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	clientscheme "k8s.io/client-go/kubernetes/scheme"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/test/tracker"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// servers is a fleet.Platform whose instances answer after the time that curves give for a batch on their share, and the way to them.
type servers struct {
	model  *profile.Share
	slower int
	events chan fleet.Event
	begin  time.Time

	mu      sync.Mutex // guards what follows
	running map[string]*server
	random  *rand.Rand
}

// server is an instance of servers.
type server struct {
	share share.Share
	phase time.Duration // of its windows
	end   chan struct{}
}

// starting is how long a server takes until it is ready.
const starting = 3 * time.Second

func (s *servers) Events() <-chan fleet.Event { return s.events }

func (s *servers) Create(i fleet.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &server{i.Share, time.Duration(s.random.Int64N(int64(s.window()))), make(chan struct{}, 1)}
	s.running[i.Name] = one
	go func() {
		time.Sleep(starting)
		s.events <- fleet.Event{Instance: i.Name, Kind: fleet.Ready, Address: i.Name + ":80"}
		<-one.end
		s.mu.Lock()
		delete(s.running, i.Name)
		s.mu.Unlock()
		s.events <- fleet.Event{Instance: i.Name, Kind: fleet.Gone}
	}()
}

func (s *servers) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.running[name]; one != nil {
		one.end <- struct{}{}
	}
}

func (s *servers) window() time.Duration { return timeOf(s.model.Window) }

// runs returns how long a batch takes that begins now: its server runs in the first part of each window, and waits in the rest. Executions vary by a
// twentieth around what the curve says.
func (s *servers) runs(one *server, batch int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	work := time.Duration(float64(timeOf(s.model.Curves[0].Exclusive.Seconds(batch))) * (0.95 + 0.05*s.random.ExpFloat64()))
	work *= time.Duration(s.slower)
	window := s.window()
	own := window * time.Duration(one.share.QuotaRequest) / time.Duration(share.Whole)
	begin := time.Since(s.begin) + one.phase
	for at := begin; ; {
		left := own - at%window
		if left >= work {
			return at + work - begin
		}
		work -= max(left, 0)
		at += window - at%window
	}
}

// tensors is a message of the Open Inference Protocol with a tensor of a row for each request.
type tensors struct {
	Inputs  []tensor `json:"inputs,omitempty"`
	Outputs []tensor `json:"outputs,omitempty"`
}

type tensor struct {
	Name     string    `json:"name"`
	Shape    []int     `json:"shape"`
	Datatype string    `json:"datatype"`
	Data     []float64 `json:"data"`
}

// RoundTrip answers for the server that the URL names.
func (s *servers) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	one := s.running[strings.TrimSuffix(r.URL.Host, ":80")]
	s.mu.Unlock()
	if one == nil {
		return nil, errors.New("connection refused")
	}
	var message tensors
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		return nil, err
	}
	time.Sleep(s.runs(one, len(message.Inputs[0].Data)))
	answer, err := json.Marshal(tensors{Outputs: message.Inputs})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(answer)))}, err
}

// stack is gshare in one process.
type stack struct {
	*testing.T
	servers  *servers
	gateway  *gateway.Gateway
	fleet    *fleet.Fleet
	client   client.Client
	planner  *Planner
	prices   planning.PriceList
	obeyed   map[string]string // resource versions of the functions that the fleet has
	requests sync.WaitGroup

	mu     sync.Mutex
	missed map[bool]int // requests, of those that are measured and of those before
	all    map[bool]int
}

var planName = types.NamespacedName{Namespace: "default", Name: "vgg19"}

// play has the functions serve the requests: together as a plan says that is applied, or each by itself.
func (r *replay) play(t *testing.T, together bool) (m measurement) {
	t.Helper()
	m.name = "each function by itself"
	divide := planning.Separate
	if together {
		m.name, divide = "gshare's plan, applied", planning.Best
	}
	plan, err := divide(r.in)
	if err != nil || len(plan.Infeasible) > 0 {
		t.Fatal(err, plan.Infeasible)
	}
	m.groups = len(plan.Groups)
	synctest.Test(t, func(t *testing.T) {
		s := r.start(t, plan, together)
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { s.fleet.Run(ctx) })
		begin, cost, samples := time.Now(), planning.Cost(0), 0
		s.requests.Go(func() { s.send(r, begin) })
		for time.Since(begin) < r.warm+r.length {
			time.Sleep(time.Second)
			if time.Since(begin)%period == 0 {
				if _, err := s.planner.Reconcile(ctx, reconcile.Request{NamespacedName: planName}); err != nil {
					t.Fatal(err)
				}
				s.follow()
			}
			if time.Since(begin) > r.warm {
				cost, samples = cost+s.cost(), samples+1
			}
		}
		object := &api.InferencePlan{}
		if err := s.client.Get(ctx, planName, object); err != nil {
			t.Fatal(err)
		}
		m.predicted, m.cost = number(object.Status.Cost.Separate), hourly(cost/planning.Cost(samples))
		if together {
			m.predicted = number(object.Status.Cost.Planned)
			if got := applied(object); !strings.HasPrefix(got, "True Applied") {
				t.Errorf("the plan is not applied: %s", got)
			}
			t.Log(applied(object))
		}
		s.requests.Wait()
		m.requests, m.missed = s.all[true], s.missed[true]
		stop()
		ended.Wait()
	})
	return m
}

// start returns a stack whose functions have the shares of the groups of a plan: of the first of each group that of the group, as it serves the others,
// and these what is best for each by itself.
func (r *replay) start(t *testing.T, plan planning.Plan, together bool) *stack {
	t.Helper()
	s := &stack{T: t, prices: r.in.Prices, obeyed: map[string]string{}, missed: map[bool]int{}, all: map[bool]int{}}
	s.servers = &servers{
		model: r.in.Models[0].Share, slower: r.slower, events: make(chan fleet.Event), begin: time.Now(), running: map[string]*server{}, random: rand.New(rand.NewPCG(*seed, 1)),
	}
	s.gateway = gateway.New(gateway.Config{Upstream: s.servers})
	apart, err := planning.Separate(r.in)
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]planning.Group{}
	for _, g := range append(apart.Groups, plan.Groups...) { // those of the plan last
		configs[g.Applications[0].Name] = g
	}
	var functions []*api.GPUFunction
	for _, a := range r.in.Applications {
		functions = append(functions, r.function(t, a, configs[a.Name]))
	}
	s.client = r.objects(t, functions, together)
	if s.fleet, err = fleet.New(fleet.Config{Gateways: s.gateway, Platform: s.servers, Log: slog.New(slog.DiscardHandler)}, nil); err != nil {
		t.Fatal(err)
	}
	s.planner = New(s.client, func(of types.NamespacedName) Running {
		name := gateway.FunctionName(of)
		status, _ := s.fleet.StatusOf(name)
		return Running{Received: s.gateway.Load(name).Received, Replicas: status.Reserved}
	}, events.NewFakeRecorder(1000))
	s.follow()
	return s
}

// function returns the function of an application, with the share and the batch of a group.
func (r *replay) function(t *testing.T, a planning.Application, g planning.Group) *api.GPUFunction {
	t.Helper()
	c := g.Config
	f := &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: planName.Namespace, Name: a.Name}}
	f.Spec.SLO.Latency, f.Spec.Protocol, f.Spec.Batching.MaxBatch = api.Duration(timeOf(a.SLO).String()), api.OIP, c.Batch
	f.Spec.Template.Spec.Containers = []v1.Container{{Name: "server", Image: "example.com/vgg19"}}
	f.Spec.Resources.Share = &api.Share{SM: new(int64(c.SM / percent)), Quota: new(int64(c.Quota / percent)), Memory: quantity(c.Memory)}
	f.Spec.Scaling.Window, f.Spec.Scaling.KeepShared = "20s", "30s" // plans price no reserve: see TestReplay
	f.Spec.Scaling.ScaleOutVotes, f.Spec.Scaling.ScaleInVotes = new(10), new(15)
	f.Spec.Scaling.MinReplicas, f.Spec.Scaling.RequestsPerSecond = 1, g.Capacity(&r.in.Models[0])
	return f
}

// objects returns an API with the functions and their plan.
func (r *replay) objects(t *testing.T, functions []*api.GPUFunction, together bool) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	profiles, err := yaml.Marshal(planning.Catalogue{Models: r.in.Models})
	if err != nil {
		t.Fatal(err)
	}
	prices, err := yaml.Marshal(planning.PriceBook{Prices: r.in.Prices, Platform: r.in.Platform})
	if err != nil {
		t.Fatal(err)
	}
	data := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: planName.Namespace, Name: "data", Labels: map[string]string{api.LabelPlanData: ""}},
		Data:       map[string]string{"profiles.yaml": string(profiles), "prices.yaml": string(prices)},
	}
	plan := &api.InferencePlan{
		ObjectMeta: metav1.ObjectMeta{Namespace: planName.Namespace, Name: planName.Name, UID: "1", Generation: 1},
		Spec: api.InferencePlanSpec{
			Model: r.in.Models[0].Name, Modes: []api.ExecutionMode{api.ModeShare}, Mode: api.Recommend,
			Profiles: api.DataReference{ConfigMap: "data", Key: "profiles.yaml"}, Prices: api.DataReference{ConfigMap: "data", Key: "prices.yaml"},
		},
	}
	if together {
		plan.Spec.Mode = api.Apply
	}
	objects := []client.Object{data, plan}
	for at, f := range functions {
		plan.Spec.Functions = append(plan.Spec.Functions, api.PlannedFunction{Name: f.Name, RequestsPerSecond: r.in.Applications[at].Rate})
		objects = append(objects, f)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker.New(scheme)).WithStatusSubresource(plan, &api.GPUFunction{}).WithObjects(objects...).Build()
}

// follow has the fleet and the gateway do what the objects say, and the objects say what the fleet does, as gshare-controller and gshare-gateway do.
func (s *stack) follow() {
	s.Helper()
	list := &api.GPUFunctionList{}
	if err := s.client.List(context.Background(), list); err != nil {
		s.Fatal(err)
	}
	nameOf := func(name string) gateway.FunctionName {
		if name == "" {
			return gateway.FunctionName{}
		}
		return gateway.FunctionName{Namespace: planName.Namespace, Name: name}
	}
	for i := range list.Items {
		f := &list.Items[i]
		if s.obeyed[f.Name] == f.ResourceVersion {
			continue
		}
		s.obeyed[f.Name] = f.ResourceVersion
		complete, err := f.CompleteForCluster(0)
		if err != nil {
			s.Fatal(err)
		}
		if err := s.fleet.Set(complete); err != nil {
			s.Fatal(err)
		}
		s.fleet.SetHost(nameOf(f.Name), nameOf(f.Status.ServedBy), nameOf(f.Status.Host))
	}
	for i := range list.Items {
		f := &list.Items[i]
		status, _ := s.fleet.StatusOf(nameOf(f.Name))
		if err := s.gateway.SetHost(nameOf(f.Name), status.Host); err != nil {
			s.Fatal(err)
		}
		if ready := int32(status.Replicas["ready"]); f.Status.Host != status.Host.Name || f.Status.ReadyReplicas != ready {
			f.Status.Host, f.Status.ReadyReplicas = status.Host.Name, ready
			if err := s.client.Status().Update(context.Background(), f); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// cost returns what all replicas cost a second that there are now.
func (s *stack) cost() (sum planning.Cost) {
	for _, status := range s.fleet.Status() {
		for _, held := range status.Reserved {
			sum += s.prices.OfShare(held)
		}
	}
	return sum
}

// send sends the requests of a trace.
func (s *stack) send(r *replay, begin time.Time) {
	body, err := json.Marshal(tensors{Inputs: []tensor{{"x", []int{1, 1}, "FP32", []float64{1}}}})
	if err != nil {
		panic(err) // it is constant
	}
	for _, a := range r.arrivals {
		time.Sleep(a.At - time.Since(begin))
		of := &r.in.Applications[a.Function]
		s.requests.Go(func() {
			sent := time.Now()
			request := &http.Request{
				Method: http.MethodPost, Host: of.Name, URL: &url.URL{Path: fmt.Sprintf("/v2/models/%s/infer", of.Model)}, Header: http.Header{},
				Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body)),
			}
			request.RequestURI = request.URL.Path
			answer := httptest.NewRecorder()
			s.gateway.ServeHTTP(answer, request)
			late := answer.Code != http.StatusOK || time.Since(sent) > timeOf(of.SLO)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.all[a.At >= r.warm]++
			if late {
				s.missed[a.At >= r.warm]++
			}
		})
	}
}
