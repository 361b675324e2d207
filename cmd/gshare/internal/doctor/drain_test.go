package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func exec(command ...string) *v1.Lifecycle {
	return &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: command}}}
}

// TestDrain: doctor counts the containers on shared slices that are drained before SIGTERM, and names the others.
func TestDrain(t *testing.T) {
	const hook = "/usr/lib/gshare/drain/gshare-drain"
	sleep := &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}}
	for name, test := range map[string]struct {
		class     share.Isolation
		lifecycle *v1.Lifecycle
		pods      int
		status    Status
		message   string
	}{
		"no pods":                   {share.MPS, nil, 0, OK, "0 containers"},
		"with the hook":             {share.MPS, exec(hook), 1, OK, "1 container on"},
		"by a shell":                {share.Elastic, exec("sh", "-c", hook+"; nginx -s quit"), 1, OK, "1 container on"},
		"without":                   {share.MPS, nil, 1, Warning, "without: ml/user-0/main"},
		"elastic, without":          {share.Elastic, nil, 1, Warning, "without: ml/user-0/main"},
		"only a postStart":          {share.MPS, &v1.Lifecycle{}, 1, Warning, "without: ml/user-0/main"},
		"another hook":              {share.MPS, exec("nginx", "-s", "quit"), 1, Warning, "ml/user-0/main (it has another preStop hook)"},
		"a hook that sleeps":        {share.MPS, sleep, 1, Warning, "ml/user-0/main (it has another preStop hook)"},
		"alone, without":            {share.Exclusive, nil, 1, OK, "0 containers"},
		"alone, with the hook":      {share.Exclusive, exec(hook), 1, Warning, "fails where a container has its GPU alone: ml/user-0/main"},
		"more than fit in a line":   {share.MPS, nil, maxNamed + 3, Warning, " and 3 more"},
		"more, and all are drained": {share.MPS, exec(hook), maxNamed + 3, OK, "13 containers"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation()
			for at := range test.pods {
				pod := ownPod(fmt.Sprint("user-", at), "", "n1", "x")
				pod.Namespace, pod.UID = "ml", types.UID(pod.Name)
				pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Lifecycle = "main", test.lifecycle
				text, err := kube.EncodePlacement(kube.Placement{Node: "n1", UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
					Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "GPU-1", Class: test.class, Priority: share.BestEffort,
						Share: share.Share{SMRequest: 10, SMLimit: 10, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: share.MiB}}},
				}}})
				if err != nil {
					t.Fatal(err)
				}
				pod.Annotations = map[string]string{kube.AnnotationPlacement: text}
				i.pods = append(i.pods, pod)
			}
			if found := i.examine(t); !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Check == "drain" && f.Status == test.status && strings.Contains(f.Message, test.message)
			}) {
				t.Errorf("no such finding among %+v", found)
			}
		})
	}
}

// TestNoDrain: where no slice can be shared, there is nothing to drain.
func TestNoDrain(t *testing.T) {
	i := newInstallation()
	i.inventory.Slices[0].Classes = []share.Isolation{share.Exclusive}
	for _, f := range i.examine(t) {
		if f.Check == "drain" {
			t.Errorf("%+v", f)
		}
	}
}
