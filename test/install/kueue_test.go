package install_test

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	requests "k8s.io/component-helpers/resource"

	"k8s.io/client-go/kubernetes"
)

// queue holds one of the example's Kueue objects, with the fields of Kueue's API v1beta2 that the example uses.
type queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ClusterQueue      string               `json:"clusterQueue,omitempty"`      // of a LocalQueue
		NodeLabels        map[string]string    `json:"nodeLabels,omitempty"`        // of a ResourceFlavor
		NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitempty"` // this and the rest: of a ClusterQueue
		ResourceGroups    []struct {
			CoveredResources []v1.ResourceName `json:"coveredResources"`
			Flavors          []struct {
				Name      string  `json:"name"`
				Resources []quota `json:"resources"`
			} `json:"flavors"`
		} `json:"resourceGroups,omitempty"`
	} `json:"spec"`
}

type quota struct {
	Name         v1.ResourceName `json:"name"`
	NominalQuota int64           `json:"nominalQuota"`
}

// kueue reads the documented example: the queue objects by their kinds, and the job.
func kueue(t *testing.T) (queues map[string]queue, job batchv1.Job) {
	t.Helper()
	queues = map[string]queue{}
	for _, b := range blocks(t) {
		if b.Language != "yaml" || !strings.HasSuffix(b.File, "queues.md") {
			continue
		}
		for _, o := range objects(t, b.File, b.Text) {
			var q queue
			into := any(&q)
			if o.GetKind() == "Job" {
				into = &job
			} else if !strings.HasPrefix(o.GetAPIVersion(), "kueue.") {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
				t.Fatalf("%s: %v", key(o), err)
			}
			queues[o.GetKind()] = q
		}
	}
	return queues, job
}

// counted returns what Kueue counts for a pod template: the containers' requests, where a limit stands in for a missing request.
func counted(template v1.PodSpec) v1.ResourceList {
	pod := &v1.Pod{Spec: *template.DeepCopy()}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Requests = pod.Spec.Containers[i].Resources.Limits
	}
	return requests.PodRequests(pod, requests.PodResourcesOptions{})
}

// TestKueue: the documented queue covers all resources that the job requests, counts for the job what its pods will hold, and
// admits as many jobs as fit on the GPUs.
func TestKueue(t *testing.T) {
	enforce(t)
	queues, job := kueue(t)
	group := queues["ClusterQueue"].Spec.ResourceGroups[0]
	flavor := group.Flavors[0]
	if queues["LocalQueue"].Spec.ClusterQueue != queues["ClusterQueue"].Name || flavor.Name != queues["ResourceFlavor"].Name ||
		job.Labels["kueue.x-k8s.io/queue-name"] != queues["LocalQueue"].Name || job.Spec.Suspend == nil || !*job.Spec.Suspend {
		t.Errorf("the objects do not name each other: %+v", queues)
	}
	var names []v1.ResourceName // Kueue requires the flavor's resources in the order of coveredResources
	jobs := map[v1.ResourceName]int64{}
	asked := counted(job.Spec.Template.Spec)
	for _, r := range flavor.Resources {
		names = append(names, r.Name)
		q := asked[r.Name]
		if q.IsZero() {
			t.Fatalf("the job counts for nothing of %s", r.Name)
		}
		jobs[r.Name] = r.NominalQuota / q.Value()
	}
	if !slices.Equal(names, group.CoveredResources) || len(asked) != len(names) {
		t.Errorf("%v are covered, %v have a quota, the job asks for %v", group.CoveredResources, names, asked)
	}
	// Eight GPUs. Each job has 50 % of the SMs x 80 % of the time, of which a slot table holds two, and 16 of 80 GiB.
	if jobs["gshare/sm-time"] != 20 || jobs["gshare/mem"] != 40 || jobs["gshare/sm"] < 1000 || jobs["gshare/quota"] < 1000 || jobs["gshare/vgpu"] < 1000 {
		t.Errorf("so many jobs are admitted by each resource: %v", jobs)
	}
	for name, held := range madeOf(t, job) {
		if q := asked[name]; q.Cmp(held) != 0 {
			t.Errorf("%s: Kueue counts %v for a pod that holds %v", name, q.Value(), held.Value())
		}
	}
	if without := shorter(job); !without.Name("gshare/sm-time", "").IsZero() {
		t.Errorf("a template that leaves sm-time out counts %v", without)
	}
}

// madeOf returns what a pod of the job requests once the admission policies have completed it.
func madeOf(t *testing.T, job batchv1.Job) v1.ResourceList {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: job.Name}, Spec: job.Spec.Template.Spec}
	made, err := kubernetes.NewForConfigOrDie(server).CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	return requests.PodRequests(made, requests.PodResourcesOptions{})
}

// shorter returns what Kueue counts for the job's template without sm-time, which the policies would add to its pods only.
func shorter(job batchv1.Job) v1.ResourceList {
	template := *job.Spec.Template.Spec.DeepCopy()
	delete(template.Containers[0].Resources.Limits, "gshare/sm-time")
	return counted(template)
}
