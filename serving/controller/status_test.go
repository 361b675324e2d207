package controller

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// TestLongMessages has what users wrote, and the API server repeats in its errors, not keep a status from being written: its definition allows 32768.
func TestLongMessages(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	s := statusOf(api.GPUFunctionStatus{}, known{}, &fleet.Status{Reason: "Failing", Message: long}, backOff{long}, "")
	for _, c := range s.Conditions {
		if len(c.Message) > 32768 || !strings.HasPrefix(c.Message, "éé") || !strings.HasSuffix(c.Message, "é…") {
			t.Errorf("%s has a message of %d bytes, which ends with %q", c.Type, len(c.Message), c.Message[len(c.Message)-10:])
		}
	}
}

// TestUrgentFirst has far more objects to write for what requests saw than one period allows, and few that are urgent.
func TestUrgentFirst(t *testing.T) {
	var objects []client.Object
	all := map[gateway.FunctionName]known{}
	for n := range 3 * maxWrites {
		f := function(t, func(f *api.GPUFunction) { f.Name = fmt.Sprintf("f%d", n) })
		name := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
		all[name] = known{}
		objects = append(objects, f)
	}
	c := newCluster(t, objects...)
	defer c.pods.queue.ShutDown()
	c.known.known = all
	for _, o := range objects {
		f := o.(*api.GPUFunction)
		f.Spec.Scaling.MinReplicas = 0
		if err := c.known.fleet.Set(f); err != nil {
			t.Fatal(err)
		}
	}
	for n, state := range c.known.fleet.Status() {
		if n < 3 {
			continue // has no status yet
		}
		f := objects[n].(*api.GPUFunction)
		f.Status = statusOf(f.Status, known{}, &state, backOff{}, "")
		f.Status.Observed.P99 = "1ms"
		if err := c.client.Status().Update(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	w := &statusWriter{
		client: c.client, fleet: c.known.fleet, advisor: c.known.advisor, functions: c.known, gateways: c.known.gateways, log: slog.New(slog.DiscardHandler),
		written: map[gateway.FunctionName]time.Time{{Namespace: "ml", Name: "gone"}: time.Now()},
	}
	w.writeAll(t.Context())
	for n := range 3 {
		f := &api.GPUFunction{}
		if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: fmt.Sprintf("f%d", n)}, f); err != nil {
			t.Fatal(err)
		}
		if meta.FindStatusCondition(f.Status.Conditions, api.ConditionReady) == nil {
			t.Errorf("%s waits behind what is not urgent", f.Name)
		}
	}
	if _, left := w.written[gateway.FunctionName{Namespace: "ml", Name: "gone"}]; left || len(w.written) != maxWrites {
		t.Errorf("%d functions were written, want %d, and none that is gone", len(w.written), maxWrites)
	}
}
