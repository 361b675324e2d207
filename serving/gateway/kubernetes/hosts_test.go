package kubernetes

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

var guest = gateway.FunctionName{Namespace: "default", Name: "guest"}

// TestHosts checks which replicas serve a function whose status names chat as its host, in whatever order the objects arrive.
func TestHosts(t *testing.T) {
	type change = func(guest, host *api.GPUFunction)
	for name, test := range map[string]struct {
		change change
		hosted bool
	}{
		"same template":           {func(_, _ *api.GPUFunction) {}, true},
		"objectives of their own": {func(g, _ *api.GPUFunction) { g.Spec.SLO.Latency = "2s" }, true},
		"no host":                 {func(g, _ *api.GPUFunction) { g.Status.Host = "" }, false},
		"unknown host":            {func(g, _ *api.GPUFunction) { g.Status.Host = "other" }, false},
		"itself":                  {func(g, _ *api.GPUFunction) { g.Status.Host = guest.Name }, false},
		"other namespace":         {func(_, h *api.GPUFunction) { h.Namespace = "others" }, false},
		"another image":           {func(_, h *api.GPUFunction) { h.Spec.Template.Spec.Containers[0].Image = "example.com/other" }, false},
		"another command":         {func(g, _ *api.GPUFunction) { g.Spec.Template.Spec.Containers[0].Command = []string{"x"} }, false},
		"another protocol":        {func(_, h *api.GPUFunction) { h.Spec.Protocol = api.OpenAI }, false},
		"external":                {func(g, _ *api.GPUFunction) { g.Spec.Scaling.Autoscaler = api.External }, false},
		"external host":           {func(_, h *api.GPUFunction) { h.Spec.Scaling.Autoscaler = api.External }, false},
		"host is served":          {func(_, h *api.GPUFunction) { h.Status.ServedBy = "third" }, false},
		"host is being deleted":   {func(_, h *api.GPUFunction) { h.DeletionTimestamp = new(metav1.Now()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			want := gateway.FunctionName{}
			if test.hosted {
				want = chat
			}
			objects := func(change change) (g, h *api.GPUFunction) {
				g, h = newFunction(), newFunction()
				g.Name, g.UID, g.Status.Host = guest.Name, "g", chat.Name
				change(g, h)
				return g, h
			}
			for order, set := range map[string]func(f *Functions, g, h *api.GPUFunction){
				"guest first": func(f *Functions, g, h *api.GPUFunction) { f.SetFunction(g); f.SetFunction(h) },
				"host first":  func(f *Functions, g, h *api.GPUFunction) { f.SetFunction(h); f.SetFunction(g) },
				"changed from a pair": func(f *Functions, g, h *api.GPUFunction) {
					f.SetFunction(newFunction())
					pair, _ := objects(func(_, _ *api.GPUFunction) {})
					f.SetFunction(pair)
					if h.Namespace != chat.Namespace {
						f.DeleteFunction(chat)
					}
					f.SetFunction(h)
					f.SetFunction(g)
				},
				"made again": func(f *Functions, g, h *api.GPUFunction) {
					f.SetFunction(h)
					f.SetFunction(g)
					f.DeleteFunction(gateway.FunctionName{Namespace: h.Namespace, Name: h.Name})
					if got := f.functions[guest].host; got != (gateway.FunctionName{}) {
						t.Errorf("the host %v is deleted", got)
					}
					f.SetFunction(h)
				},
			} {
				fake, f := newTest()
				g, h := objects(test.change)
				set(f, g, h)
				if got := fake.functions[guest].host; got != want {
					t.Errorf("%s: host %v, want %v", order, got, want)
				}
			}
		})
	}
}

// TestHostEnds checks that a host keeps serving a function without replicas after the status no longer names a host, but not once the function has
// another template.
func TestHostEnds(t *testing.T) {
	other := newFunction(func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "example.com/other" })
	served := newFunction(func(f *api.GPUFunction) { f.Name, f.UID, f.Status.Host = guest.Name, "g", chat.Name })
	alone := served.DeepCopy()
	alone.Status.Host = ""
	for name, test := range map[string]struct {
		then        func(f *Functions)
		ends, drops int
	}{
		"not named any more":              {func(f *Functions) { f.SetFunction(alone) }, 1, 0},
		"another template":                {func(f *Functions) { f.SetFunction(other) }, 0, 1},
		"not named, then another one":     {func(f *Functions) { f.SetFunction(alone); f.SetFunction(other) }, 1, 1},
		"another one, then not named":     {func(f *Functions) { f.SetFunction(other); f.SetFunction(alone) }, 0, 1},
		"another one, twice":              {func(f *Functions) { f.SetFunction(other); f.SetFunction(other) }, 0, 1},
		"deleted":                         {func(f *Functions) { f.DeleteFunction(chat) }, 0, 1},
		"other changes of both":           {func(f *Functions) { f.SetFunction(newFunction()); f.SetFunction(served) }, 0, 0},
		"not named, then deleted":         {func(f *Functions) { f.SetFunction(alone); f.DeleteFunction(chat) }, 1, 1},
		"not named, then named once more": {func(f *Functions) { f.SetFunction(alone); f.SetFunction(served) }, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake, f := newTest()
			f.SetFunction(newFunction())
			f.SetFunction(served)
			test.then(f)
			if s := fake.functions[guest]; s.ends != test.ends || s.drops != test.drops {
				t.Errorf("%d ends and %d drops, want %d and %d", s.ends, s.drops, test.ends, test.drops)
			}
		})
	}
}
