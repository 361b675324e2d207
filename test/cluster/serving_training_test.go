package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// trained is a training whose sequential kernels keep at most 40 % of the SMs busy.
const trained = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: train}
spec:
  training: {steady: 15s}
  search: {strategy: Bisection, step: 50}
  template:
    spec:
      containers:
      - {name: main, image: "` + modelImage + `", command: [COMMAND], resources: {requests: {cpu: 100m}}}
`

// TestServingTraining: a program that answers no requests is measured without a client, by the kernels that the agents count, including a measurement with all
// SMs. It is no faster with more than half of the SMs.
func TestServingTraining(t *testing.T) {
	s := startServing(t)
	s.write(t, strings.Replace(trained, "COMMAND", `"`+strings.Join(spin(10*time.Millisecond, 40, "sync=1", "pause=10000000"), `", "`)+`"`, 1))
	p := &api.GPUProfile{}
	err := utilwait.PollUntilContextTimeout(s.ctx, time.Second, 7*time.Minute, true, func(context.Context) (bool, error) {
		err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "train"}, p)
		return err == nil && meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionComplete), err
	})
	t.Log("\n" + s.kubectl(t, "get", "gpuprofiles", "-o", "wide"))
	if err != nil {
		t.Fatalf("%v: %+v", err, p.Status)
	}
	for _, point := range p.Status.Points {
		t.Logf("%+v", point)
		if point.KernelsPerSecond <= 0 || point.KernelsPerSecond > 60 || point.Failed != "" { // 50 launches per second on an idle machine
			t.Errorf("%+v", point)
		}
		if part := point.GPUTimePercent; part == nil || *part < 20 || *part > 80 {
			t.Errorf("%+v: part of the time %v", point, part)
		}
	}
	best := p.Status.Recommended
	if best == nil || best.SM != 50 || best.KernelsPerSecond <= 0 || best.RequestsPerSecond != 0 || len(p.Status.Points) != 2 || p.Status.Fingerprint == nil {
		t.Errorf("%+v of %+v", best, p.Status)
	}
	s.wait(t, "no pods of trials", func() bool { return len(s.pods(t, "default", api.LabelProfile, "train")) == 0 })
}
