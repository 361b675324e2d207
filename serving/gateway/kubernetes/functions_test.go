package kubernetes

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

var chat = gateway.FunctionName{Namespace: "default", Name: "chat"}

// state is what a gateway knows about a function.
type state struct {
	gateway.Function
	replicas []gateway.Replica
	until    time.Time // end of its back-off
	why      string
	host     gateway.FunctionName
	ends     int // number of hosts that may go on until the function has its own replicas
	drops    int
}

// fakeGateway is a gateway, and the server of its reports, that records what it is told.
type fakeGateway struct {
	functions map[gateway.FunctionName]*state
	inFlight  map[string]chan struct{} // by replica with requests; closed when they are answered
	drained   map[gateway.FunctionName][]string
}

func (g *fakeGateway) SetFunction(f gateway.Function) error {
	if g.functions[f.FunctionName] == nil {
		g.functions[f.FunctionName] = &state{}
	}
	g.functions[f.FunctionName].Function = f
	return nil
}

func (g *fakeGateway) RemoveFunction(name gateway.FunctionName) { delete(g.functions, name) }

func (g *fakeGateway) SetReplicas(name gateway.FunctionName, all []gateway.Replica) error {
	if s := g.functions[name]; s != nil {
		s.replicas = all
	}
	return nil
}

func (g *fakeGateway) SetBackOff(name gateway.FunctionName, until time.Time, why string) {
	if s := g.functions[name]; s != nil {
		s.until, s.why = until, why
	}
}

func (g *fakeGateway) SetHost(name, host gateway.FunctionName) error {
	if s := g.functions[name]; s != nil {
		s.host = host
		if host == (gateway.FunctionName{}) {
			s.ends++
		}
	}
	return nil
}

func (g *fakeGateway) DropHost(name gateway.FunctionName) {
	if s := g.functions[name]; s != nil {
		s.host = gateway.FunctionName{}
		s.drops++
	}
}

// StartDrain finds only listed replicas, as a real gateway does.
func (g *fakeGateway) StartDrain(name gateway.FunctionName, replica string) <-chan struct{} {
	if s := g.functions[name]; s != nil && slices.ContainsFunc(s.replicas, func(r gateway.Replica) bool { return r.ID == replica }) {
		if requests := g.inFlight[replica]; requests != nil {
			return requests
		}
	}
	none := make(chan struct{})
	close(none)
	return none
}

func (g *fakeGateway) SetDrained(name gateway.FunctionName, pods []string) { g.drained[name] = pods }

// text returns the state of all functions in one line.
func (g *fakeGateway) text() string {
	var lines []string
	for name, s := range g.functions {
		line := fmt.Sprintf("%s slo=%v %v batch=%d:", name.Name, s.SLO, s.Protocol, s.MaxBatch)
		if s.Hold.InTime {
			line += " in turn"
		}
		for _, r := range s.replicas {
			line += fmt.Sprintf(" %s=%s/%v/%d", r.ID, r.Address, r.Residency, r.Credits)
		}
		if d := g.drained[name]; len(d) > 0 {
			line += fmt.Sprintf(" drained %v", d)
		}
		if s.why != "" {
			line += " backing off: " + s.why
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func newTest() (*fakeGateway, *Functions) {
	g := &fakeGateway{functions: map[gateway.FunctionName]*state{}, inFlight: map[string]chan struct{}{}, drained: map[gateway.FunctionName][]string{}}
	f := NewFunctions(g, g, slog.New(slog.DiscardHandler))
	f.SetFastPod(newFastPod())
	return g, f
}

// newFastPod returns the FaSTPod of the pods, with changes.
func newFastPod(changes ...func(*api.FaSTPod)) *api.FaSTPod {
	fp := &api.FaSTPod{ObjectMeta: metav1.ObjectMeta{
		Namespace: chat.Namespace, Name: "chat-1", UID: "fp",
		OwnerReferences: []metav1.OwnerReference{{Kind: api.Kind, Name: chat.Name, UID: "f", Controller: &controls}},
	}}
	for _, change := range changes {
		change(fp)
	}
	return fp
}

// newFunction returns the object of a function as the API server has it, with changes.
func newFunction(changes ...func(*api.GPUFunction)) *api.GPUFunction {
	f := &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: chat.Namespace, Name: chat.Name, UID: "f"}}
	f.Spec.SLO.Latency = "200ms"
	f.Spec.Scaling.Concurrency = new(4)
	f.Spec.Template.Spec.Containers = []v1.Container{{Name: "server", Image: "example.com/chat"}}
	for _, change := range changes {
		change(f)
	}
	return f
}

func backingOff(why string) func(*api.GPUFunction) {
	return func(f *api.GPUFunction) {
		f.Status.Conditions = []metav1.Condition{{Type: api.ConditionBackingOff, Status: metav1.ConditionTrue, Message: why}}
	}
}

var controls = true

// newPod returns a pod of the function that is Ready, with changes.
func newPod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: chat.Namespace, Name: name, UID: types.UID(name), Labels: map[string]string{api.LabelFunction: chat.Name, api.LabelInstance: "1"}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{Kind: api.FaSTPodKind, Name: "chat-1", UID: "fp", Controller: &controls}},
		},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{Name: kube.ServerPortName, ContainerPort: 90}}}}},
		Status: v1.PodStatus{PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// TestAtOnce: the number of concurrent requests for a pod in parts is multiplied by the factor that the controller has written.
func TestAtOnce(t *testing.T) {
	for value, want := range map[string]int{"3": 12, "1": 4, "64": 256, "": 4, "0": 4, "-2": 4, "65": 4, "many": 4, "99999999999999999999": 4} {
		g, f := newTest()
		f.SetFunction(newFunction())
		f.SetPod(newPod("a", func(p *v1.Pod) { p.Annotations[api.AnnotationAtOnce] = value }))
		if got := g.functions[chat].replicas[0].Credits; got != want {
			t.Errorf("%q: %d requests at once, want %d", value, got, want)
		}
	}
}

func noInstance(p *v1.Pod) { delete(p.Labels, api.LabelInstance) }
func notReady(p *v1.Pod)   { p.Status.Conditions[0].Status = v1.ConditionFalse }

// probeFails changes a Ready pod as the kubelet does when the readiness probe of its container has failed.
func probeFails(p *v1.Pod) {
	silentNode(p)
	p.Status.Conditions[1].Status = v1.ConditionFalse
}

// silentNode changes a Ready pod as the node controller does when its node is silent.
func silentNode(p *v1.Pod) {
	notReady(p)
	p.Status.Conditions[0].LastTransitionTime = metav1.Now()
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue})
}

func terminating(p *v1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
func drain(p *v1.Pod)       { p.Annotations[api.AnnotationDrain] = "2026-01-01T00:00:00Z" }

func wanted(l residency.Level) func(*v1.Pod) {
	return func(p *v1.Pod) {
		text, err := residency.Wanted{Seq: 1, Level: l}.Encode()
		if err != nil {
			panic(err)
		}
		p.Annotations[kube.AnnotationResidency] = text
	}
}

func reached(l residency.Level) func(*v1.Pod) {
	return func(p *v1.Pod) {
		text, err := residency.Reached{Seq: 1, Level: l}.Encode()
		if err != nil {
			panic(err)
		}
		p.Annotations[kube.AnnotationResidencyReached] = text
	}
}

// TestStates gives the gateway a function and a pod in some state, in both orders: as the first state that is seen, and after a state in which
// the pod got requests.
func TestStates(t *testing.T) {
	const hot, none = " a=10.0.0.1:90/Hot/4", ""
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"ready":       {newPod("a"), hot},
		"not ready":   {newPod("a", notReady), none},
		"probe fails": {newPod("a", probeFails), none},
		"silent node": {newPod("a", silentNode), " a=10.0.0.1:90/Shared/4"},
		"silent node for long": {newPod("a", silentNode, func(p *v1.Pod) {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-silence))
		}), none},
		"silent node, drain":       {newPod("a", silentNode, drain), " drained [a]"},
		"silent node, terminating": {newPod("a", silentNode, terminating), " drained [a]"},
		"silent node, no IP":       {newPod("a", silentNode, func(p *v1.Pod) { p.Status.PodIP = "" }), none},
		"no condition":             {newPod("a", func(p *v1.Pod) { p.Status.Conditions = nil }), none},
		"no IP":                    {newPod("a", func(p *v1.Pod) { p.Status.PodIP = "" }), none},
		"IPv6":                     {newPod("a", func(p *v1.Pod) { p.Status.PodIP = "fd00::1" }), " a=[fd00::1]:90/Hot/4"},
		"no port":                  {newPod("a", func(p *v1.Pod) { p.Spec.Containers[0].Ports = nil }), " a=10.0.0.1:8080/Hot/4"},
		"drain":                    {newPod("a", drain), " drained [a]"},
		"drain, not ready":         {newPod("a", drain, notReady), " drained [a]"},
		"terminating":              {newPod("a", terminating), " drained [a]"},
		"terminating, not ready":   {newPod("a", terminating, notReady), " drained [a]"},
		"hot":                      {newPod("a", wanted(residency.Hot)), hot},
		"shared":                   {newPod("a", wanted(residency.Shared)), " a=10.0.0.1:90/Shared/4"},
		"to be parked":             {newPod("a", wanted(residency.Warm)), " drained [a a/1]"},
		"to be deleted":            {newPod("a", wanted(residency.Cold)), " drained [a]"},
		"hot, reached":             {newPod("a", wanted(residency.Hot), reached(residency.Hot)), hot},
		"being lowered":            {newPod("a", wanted(residency.Shared), reached(residency.Hot)), " a=10.0.0.1:90/Shared/4"},
		"being raised":             {newPod("a", wanted(residency.Hot), reached(residency.Shared)), " a=10.0.0.1:90/Shared/4"},
		"being woken":              {newPod("a", wanted(residency.Hot), reached(residency.Warm)), none},
		"malformed reached":        {newPod("a", wanted(residency.Shared), func(p *v1.Pod) { p.Annotations[kube.AnnotationResidencyReached] = "hot" }), hot},
		"malformed residency":      {newPod("a", func(p *v1.Pod) { p.Annotations[kube.AnnotationResidency] = "hot" }), hot},
		"another function's":       {newPod("a", func(p *v1.Pod) { p.Labels[api.LabelFunction] = "other" }), none},
		"controlled by nothing":    {newPod("a", func(p *v1.Pod) { p.OwnerReferences = nil }), none},
		"of a user's FaSTPod":      {newPod("a", noInstance), none},
		"of no FaSTPod":            {newPod("a", func(p *v1.Pod) { p.OwnerReferences[0].Name = "chat-2" }), none},
		"of an earlier FaSTPod":    {newPod("a", func(p *v1.Pod) { p.OwnerReferences[0].UID = "before" }), none},
		"of a Deployment":          {newPod("a", func(p *v1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }), none},
		"shared, but to be parked": {newPod("a", wanted(residency.Shared), drain), " drained [a]"},
	} {
		t.Run(name, func(t *testing.T) {
			for order, events := range map[string]func(*Functions){
				"function first":      func(f *Functions) { f.SetFunction(newFunction()); f.SetPod(test.pod) },
				"pod first":           func(f *Functions) { f.SetPod(test.pod); f.SetFunction(newFunction()) },
				"after it was ready":  func(f *Functions) { f.SetFunction(newFunction()); f.SetPod(newPod("a")); f.SetPod(test.pod) },
				"between":             func(f *Functions) { f.SetPod(newPod("a")); f.SetFunction(newFunction()); f.SetPod(test.pod) },
				"function comes late": func(f *Functions) { f.SetPod(newPod("a")); f.SetPod(test.pod); f.SetFunction(newFunction()) },
				"function comes again": func(f *Functions) {
					f.SetFunction(newFunction())
					f.SetPod(test.pod)
					f.DeleteFunction(chat)
					f.SetFunction(newFunction())
				},
			} {
				g, f := newTest()
				events(f)
				if got := g.text(); got != "chat slo=200ms HTTP batch=1:"+test.want {
					t.Errorf("%s: %q, want %q", order, got, test.want)
				}
			}
		})
	}
}

// TestSilentForLong: once a pod's node has been silent for a minute, the pod's address may belong to another pod.
func TestSilentForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const function = "chat slo=200ms HTTP batch=1:"
		g, f := newTest()
		f.SetFunction(newFunction())
		f.SetPod(newPod("a", silentNode))
		for _, want := range []string{" a=10.0.0.1:90/Shared/4", ""} {
			f.Refresh()
			if got := g.text(); got != function+want {
				t.Errorf("%q, want %q", got, want)
			}
			time.Sleep(silence)
		}
		f.SetPod(newPod("a"))
		if got := g.text(); got != function+" a=10.0.0.1:90/Hot/4" {
			t.Errorf("%q after the node has answered", got)
		}
	})
}

// TestProbeFails: a pod whose probe fails for a while gets no requests meanwhile, and the other one gets them.
func TestProbeFails(t *testing.T) {
	const function, b = "chat slo=200ms HTTP batch=1:", " b=10.0.0.1:90/Hot/4"
	g, f := newTest()
	f.SetFunction(newFunction())
	f.SetPod(newPod("b"))
	for _, step := range []struct {
		change func(*v1.Pod)
		want   string
	}{{func(*v1.Pod) {}, " a=10.0.0.1:90/Hot/4" + b}, {probeFails, b}, {func(*v1.Pod) {}, " a=10.0.0.1:90/Hot/4" + b}} {
		f.SetPod(newPod("a", step.change))
		if got := g.text(); got != function+step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}

// TestOwners: the pods of a function are those of the FaSTPods that it controls, as long as all three objects exist.
func TestOwners(t *testing.T) {
	const nobody, one = "chat slo=200ms HTTP batch=1:", "chat slo=200ms HTTP batch=1: a=10.0.0.1:90/Hot/4"
	g, f := newTest()
	key := types.NamespacedName{Namespace: chat.Namespace, Name: "chat-1"}
	f.DeleteFastPod(key)
	f.SetPod(newPod("a"))
	for _, step := range []struct {
		when string
		do   func()
		want string
	}{
		{"a pod of an unknown FaSTPod", func() { f.SetFunction(newFunction()) }, nobody},
		{"that comes", func() { f.SetFastPod(newFastPod()) }, one},
		{"and is seen again", func() { f.SetFastPod(newFastPod()) }, one},
		{"a function of this name that was made again", func() { f.SetFunction(newFunction(func(f *api.GPUFunction) { f.UID = "g" })) }, nobody},
		{"the earlier one", func() { f.SetFunction(newFunction()) }, one},
		{"a FaSTPod of another function", func() { f.SetFastPod(newFastPod(func(fp *api.FaSTPod) { fp.OwnerReferences[0].Name = "other" })) }, nobody},
		{"its own again", func() { f.SetFastPod(newFastPod()) }, one},
		{"a FaSTPod of nobody", func() { f.SetFastPod(newFastPod(func(fp *api.FaSTPod) { fp.OwnerReferences = nil })) }, nobody},
		{"its own once more", func() { f.SetFastPod(newFastPod()) }, one},
		{"a FaSTPod of this name that was made again", func() { f.SetFastPod(newFastPod(func(fp *api.FaSTPod) { fp.UID = "later" })) }, nobody},
		{"the first one", func() { f.SetFastPod(newFastPod()) }, one},
		{"no FaSTPod any more", func() { f.DeleteFastPod(key) }, nobody},
	} {
		step.do()
		if got := g.text(); got != step.want {
			t.Errorf("%s: %q, want %q", step.when, got, step.want)
		}
	}
}

// TestExternal: if another autoscaler scales a function, its replicas are the pods with its label, whoever created them.
func TestExternal(t *testing.T) {
	external := func(f *api.GPUFunction) {
		f.Spec.Scaling.Autoscaler, f.Spec.Scaling.RequestsPerSecond, f.Spec.Template = api.External, 10, v1.PodTemplateSpec{}
	}
	deployed := newPod("a", noInstance, func(p *v1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" })
	const nobody, one = "chat slo=200ms HTTP batch=1:", "chat slo=200ms HTTP batch=1: a=10.0.0.1:90/Hot/4"
	g, f := newTest()
	f.SetPod(deployed)
	for _, step := range []struct {
		when string
		do   func()
		want string
	}{
		{"a function that gshare scales", func() { f.SetFunction(newFunction()) }, nobody},
		{"one that somebody else scales from now on", func() { f.SetFunction(newFunction(external)) }, one},
		{"with a pod of a user's FaSTPod", func() { f.SetPod(newPod("b", noInstance)) }, one + " b=10.0.0.1:90/Hot/4"},
		{"with a pod that ends", func() { f.SetPod(newPod("b", noInstance, terminating)) }, one + " drained [b]"},
		{"without that pod", func() { f.DeletePod(types.NamespacedName{Namespace: chat.Namespace, Name: "b"}) }, one},
		{"and one that gshare scales again", func() { f.SetFunction(newFunction()) }, nobody},
	} {
		step.do()
		if got := g.text(); got != step.want {
			t.Errorf("%s: %q, want %q", step.when, got, step.want)
		}
	}
}

// TestOrders tries all interleavings of the changes of several objects, where the changes of each object keep their order. All lead to the same
// final state.
func TestOrders(t *testing.T) {
	objects := [][]func(*Functions){
		{
			func(f *Functions) { f.SetFunction(newFunction(backingOff("a: exit status 1"))) },
			func(f *Functions) {
				f.SetFunction(newFunction(func(f *api.GPUFunction) { f.Spec.Scaling.Concurrency = new(2) }))
			},
		},
		{
			func(f *Functions) { f.SetPod(newPod("a")) },
			func(f *Functions) { f.SetPod(newPod("a", drain)) },
		},
		{
			func(f *Functions) { f.SetPod(newPod("b")) },
			func(f *Functions) { f.SetPod(newPod("b", wanted(residency.Shared))) },
		},
		{
			func(f *Functions) { f.SetPod(newPod("c")) },
			func(f *Functions) { f.DeletePod(types.NamespacedName{Namespace: chat.Namespace, Name: "c"}) },
		},
	}
	orders := 0
	var run func(done []int, trace []int)
	run = func(done, trace []int) {
		whole := true
		for o, changes := range objects {
			if done[o] < len(changes) {
				whole = false
				next := slices.Clone(done)
				next[o]++
				run(next, append(slices.Clone(trace), o))
			}
		}
		if !whole {
			return
		}
		orders++
		g, f := newTest()
		at := make([]int, len(objects))
		for _, o := range trace {
			objects[o][at[o]](f)
			at[o]++
		}
		if got, want := g.text(), "chat slo=200ms HTTP batch=1: b=10.0.0.1:90/Shared/2 drained [a]"; got != want {
			t.Fatalf("order %v: %q, want %q", trace, got, want)
		}
	}
	run(make([]int, len(objects)), nil)
	if orders != 2520 { // 8! / (2! 2! 2! 2!)
		t.Errorf("tried %d orders, want 2520", orders)
	}
}

func TestNamespaces(t *testing.T) {
	g, f := newTest()
	f.SetFunction(newFunction())
	f.SetPod(newPod("a"))
	f.SetPod(newPod("a", func(p *v1.Pod) { p.Namespace, p.Status.PodIP = "other", "10.0.0.2" }))
	f.DeletePod(types.NamespacedName{Namespace: "other", Name: "a"})
	if got, want := g.text(), "chat slo=200ms HTTP batch=1: a=10.0.0.1:90/Hot/4"; got != want {
		t.Errorf("with a pod of this name in another namespace: %q, want %q", got, want)
	}
}

// TestRequestsInFlight has a pod with a request in flight at each change.
func TestRequestsInFlight(t *testing.T) {
	key := types.NamespacedName{Namespace: chat.Namespace, Name: "a"}
	for name, test := range map[string]struct {
		changes []func(*Functions)
		during  []string // drained pods before and after the request is answered
		after   []string
	}{
		"drain":                {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }}, nil, []string{"a"}},
		"terminating":          {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", terminating)) }}, nil, []string{"a"}},
		"not ready":            {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", notReady)) }}, nil, nil},
		"not ready, drain":     {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", notReady)) }, func(f *Functions) { f.SetPod(newPod("a", notReady, drain)) }}, nil, []string{"a"}},
		"drain, not ready":     {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.SetPod(newPod("a", notReady, drain)) }}, nil, []string{"a"}},
		"drain, terminating":   {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.SetPod(newPod("a", terminating)) }}, nil, []string{"a"}},
		"drain, ready again":   {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.SetPod(newPod("a")) }}, nil, nil},
		"drain twice":          {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.SetPod(newPod("a")) }, func(f *Functions) { f.SetPod(newPod("a", drain)) }}, nil, []string{"a"}},
		"drain, deleted":       {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.DeletePod(key) }}, nil, nil},
		"replaced":             {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.SetPod(newPod("a", drain, func(p *v1.Pod) { p.UID = "new" })) }}, []string{"a"}, []string{"a"}},
		"function comes again": {[]func(*Functions){func(f *Functions) { f.DeleteFunction(chat); f.SetFunction(newFunction()) }, func(f *Functions) { f.SetPod(newPod("a", drain)) }}, nil, []string{"a"}},
		"function deleted":     {[]func(*Functions){func(f *Functions) { f.SetPod(newPod("a", drain)) }, func(f *Functions) { f.DeleteFunction(chat) }}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, f := newTest()
				request := make(chan struct{})
				g.inFlight["a"] = request
				f.SetFunction(newFunction())
				f.SetPod(newPod("a"))
				for _, change := range test.changes {
					change(f)
				}
				if got := g.drained[chat]; !slices.Equal(got, test.during) {
					t.Errorf("before the answer: drained %v, want %v", got, test.during)
				}
				close(request)
				synctest.Wait()
				if got := g.drained[chat]; !slices.Equal(got, test.after) {
					t.Errorf("after the answer: drained %v, want %v", got, test.after)
				}
			})
		})
	}
}

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := newTest()
		want := func(why string, from time.Time) {
			t.Helper()
			until := time.Time{}
			if why != "" {
				until = from.Add(10 * time.Second)
			}
			if s := g.functions[chat]; s.why != why || !s.until.Equal(until) {
				t.Errorf("backs off until %v, %q, want %v, %q", s.until, s.why, until, why)
			}
		}
		f.SetFunction(newFunction(backingOff("a: exit status 1")))
		want("a: exit status 1", time.Now())
		time.Sleep(5 * time.Second)
		f.Refresh()
		want("a: exit status 1", time.Now())
		f.SetFunction(newFunction(backingOff("b: exit status 2")))
		want("b: exit status 2", time.Now())
		f.SetFunction(newFunction(backingOff(""), func(f *api.GPUFunction) { f.Status.Conditions[0].Status = metav1.ConditionFalse }))
		want("", time.Now())
		f.Refresh()
		want("", time.Now())
		f.SetFunction(newFunction(backingOff("again")))
		f.SetFunction(newFunction())
		want("", time.Now())
		f.SetFunction(newFunction(backingOff("again")))
		f.DeleteFunction(chat)
		f.SetFunction(newFunction())
		f.Refresh()
		want("", time.Now())
	})
}

func TestInvalidFunction(t *testing.T) {
	var log strings.Builder
	g, _ := newTest()
	f := NewFunctions(g, g, slog.New(slog.NewTextHandler(&log, nil)))
	f.SetFastPod(newFastPod())
	invalid := func(f *api.GPUFunction) { f.Spec.SLO.Latency = "soon" }
	f.SetFunction(newFunction(invalid))
	f.SetPod(newPod("a"))
	if got := g.text(); got != "" {
		t.Errorf("a function that was never valid: %q, want none", got)
	}
	f.SetFunction(newFunction())
	want := g.text()
	if !strings.Contains(want, "a=10.0.0.1:90") {
		t.Errorf("a function that has become valid: %q, want its pod", want)
	}
	for range 3 {
		f.SetFunction(newFunction(invalid))
	}
	if got := g.text(); got != want {
		t.Errorf("a function that is not valid any more: %q, want it as it was, %q", got, want)
	}
	if n := strings.Count(log.String(), "function is not valid"); n != 2 {
		t.Errorf("logged %d times, want once each time that it has become invalid:\n%s", n, log.String())
	}
}

// TestFunctionInTurn: requests for a function of class swap wait until their deadlines, not for a first replica.
func TestFunctionInTurn(t *testing.T) {
	g, f := newTest()
	for annotation, want := range map[string]string{"": "chat slo=200ms HTTP batch=1:", "mps": "chat slo=200ms HTTP batch=1:", "swap": "chat slo=200ms HTTP batch=1: in turn"} {
		f.SetFunction(newFunction(func(f *api.GPUFunction) {
			f.Spec.Template.Annotations = map[string]string{kube.AnnotationIsolation: annotation}
		}))
		if got := g.text(); got != want {
			t.Errorf("isolation %q: %q, want %q", annotation, got, want)
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	_, f := newTest()
	f.SetFunction(newFunction())
	f.SetPod(newPod("a"))
	f.SetPod(newPod("a", func(p *v1.Pod) { p.Labels[api.LabelFunction] = "other" }))
	f.DeleteFunction(chat)
	f.SetFunction(newFunction(func(f *api.GPUFunction) { f.Spec.SLO.Latency = "soon" }))
	f.DeleteFunction(chat)
	for range 2 { // the second time the function is unknown
		f.DeletePod(types.NamespacedName{Namespace: chat.Namespace, Name: "a"})
	}
	f.DeleteFastPod(types.NamespacedName{Namespace: chat.Namespace, Name: "chat-1"})
	if len(f.functions) > 0 || len(f.owners) > 0 || len(f.fastPods) > 0 {
		t.Errorf("functions %v, pods %v and FaSTPods %v are left", slices.Collect(maps.Keys(f.functions)), f.owners, f.fastPods)
	}
}
