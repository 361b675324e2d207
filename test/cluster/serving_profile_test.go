package cluster_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiles"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// profiledFunction is a function that specifies only its objective and its profile, which tries two shares.
const profiledFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: measured}
spec:
  functionRef: {name: resnet50}
  memory: 1Gi
  search: {strategy: Grid, sm: [20, 40], quota: [100]}
---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 1s}
  protocol: OIP
  access: {namespaces: ["*"]}
  profileRef: {name: measured}
  template:
    spec:
      containers:
      - {name: server, image: "` + modelImage + `", args: [--name, resnet50, --batch, 1=20ms, --input, "input:UINT8:1"]}
`

// TestServingProfile measures a function on shares of a GPU, while the controller, a client and a server are killed, and then serves it on the share that
// was found.
func TestServingProfile(t *testing.T) {
	s := startServing(t)
	s.write(t, profiledFunction)
	profile := func() *api.GPUProfile {
		p := &api.GPUProfile{}
		s.read(t, "default", "measured", p)
		return p
	}
	running := func(client bool) *v1.Pod {
		for _, p := range s.pods(t, "default", api.LabelProfile, "measured") {
			isClient := len(p.Spec.Containers[0].Env) > 0 && p.Spec.Containers[0].Env[0].Name == profiles.JobVariable
			if isClient == client && p.Status.Phase == v1.PodRunning {
				return &p
			}
		}
		return nil
	}
	points := func() int { return len(profile().Status.Points) }
	s.wait(t, "a client", func() bool { return running(true) != nil })
	server := running(false)
	if placement, present, err := kube.PlacementOf(server); err != nil || !present || placement.Containers[0].VGPUs[0].Share.SMRequest != 200 {
		t.Errorf("the server is placed as %+v, %v", placement, err)
	}
	leader, _ := s.leader(t)
	s.kill(t, &leader)
	s.wait(t, "a trial after the controller's end", func() bool { return points() == 1 })
	s.wait(t, "the client of the second trial", func() bool { to := profile().Status.Target; return running(true) != nil && to != nil && to.SM == 40 })
	if n := profile().Status.Target.Number; n != 2 {
		t.Errorf("the controller's end cost a server: the second share has server %d", n)
	}
	s.kill(t, running(true))
	s.wait(t, "another client", func() bool { a := profile().Status.Attempt; return a != nil && a.Clients == 2 && running(true) != nil })
	s.kill(t, running(false))
	s.wait(t, "another server", func() bool { a := profile().Status.Attempt; return a != nil && a.Count == 2 && running(false) != nil })
	s.wait(t, "the second trial", func() bool { return points() == 2 })
	s.wait(t, "complete", func() bool {
		return meta.IsStatusConditionTrue(profile().Status.Conditions, api.ConditionComplete)
	})
	t.Log("\n" + s.kubectl(t, "get", "gpuprofiles,gpufunctions"))
	status := profile().Status
	for _, p := range status.Points {
		t.Logf("%+v", p)
		if p.Failed != "" || p.MeanMicroseconds < 20_000 {
			t.Errorf("%+v", p)
		}
	}
	best := status.Recommended
	if best == nil || best.RequestsPerSecond <= 0 || best.Memory != "1Gi" || status.Fingerprint == nil || status.Fingerprint.Image == "" {
		t.Fatalf("%+v", status)
	}
	s.wait(t, "no pods of trials", func() bool { return len(s.pods(t, "default", api.LabelProfile, "measured")) == 0 })
	s.wait(t, "the function knows", func() bool { return s.function(t).Status.Profiled != nil })
	if err := s.ask(t, "resnet50"); err != nil {
		t.Fatal(err)
	}
	pods := s.pods(t, "default", api.LabelFunction, "resnet50")
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	if placement, _, err := kube.PlacementOf(&pods[0]); err != nil || int64(placement.Containers[0].VGPUs[0].Share.SMRequest) != 10*best.SM {
		t.Errorf("placed as %+v, %v; recommended %+v", placement, err, best)
	}
	s.wait(t, "not Unprofiled", func() bool {
		c := meta.FindStatusCondition(s.function(t).Status.Conditions, api.ConditionReady)
		return c.Status == metav1.ConditionTrue && c.Reason != "Unprofiled"
	})
	s.kubectl(t, "delete", "gpufunction", "resnet50")
	s.kubectl(t, "delete", "gpuprofile", "measured")
}
