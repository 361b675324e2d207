package profiles

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// JobVariable is the environment variable that holds a client's profiler.Job as JSON. The client's termination message is the profiler.Outcome.
const JobVariable = "GSHARE_JOB"

// clientName is the name of the container that sends the requests.
const clientName = "client"

// clientCommand is the command in the controller's image that sends the requests of a job.
var clientCommand = []string{"gshare-controller", "measure"}

// measureLimit is enough time for all steps of a trial, each of which ends within a minute. A client that needs longer only blocks a GPU.
const measureLimit = 30 * time.Minute

// clientDeadline is the time in seconds after which the kubelet ends a client, even if no controller watches it. It counts from when the client is assigned to
// a node, not from when its volumes and its image are there.
const clientDeadline = int64((measureLimit + clientLimit) / time.Second)

// targetPodName returns the name of the pod with the server. It differs with everything that determines what the server does, so that creating the same server
// twice yields one pod.
func targetPodName(p *api.GPUProfile, s *api.GPUProfileStatus) string {
	if s.Target == nil {
		return ""
	}
	return p.Name + "-" + hashOf(8, []string{"target", string(p.UID), s.Plan, strconv.Itoa(int(s.Target.Number))})
}

// clientPodName returns the name of the pod with the client of the current attempt.
func clientPodName(p *api.GPUProfile, s *api.GPUProfileStatus) string {
	if s.Target == nil || s.Attempt == nil {
		return ""
	}
	a := s.Attempt
	return p.Name + "-" + hashOf(8, []string{
		"client", string(p.UID), s.Plan, fmt.Sprint(s.Target.Number, a.Batch, a.Confirm, a.Count, a.Clients),
	})
}

// targetPod returns the pod with the server, on its share with all of the GPU's memory. It is not a replica: it gets none of the function's
// requests.
func targetPod(p *api.GPUProfile, plan *plan, d device) *v1.Pod {
	t := plan.template.DeepCopy()
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	controller.DropReserved(t.Annotations)
	for _, a := range []string{kube.AnnotationSMLimit, kube.AnnotationQuotaLimit, kube.AnnotationSlice} {
		delete(t.Annotations, a)
	}
	if t.Annotations[kube.AnnotationIsolation] == string(share.Swap) { // it would wait for replicas to give up the GPU, and they for it
		delete(t.Annotations, kube.AnnotationIsolation)
	}
	maps.DeleteFunc(t.Annotations, func(a, _ string) bool { return strings.HasPrefix(a, kube.AnnotationContainerSlice) })
	t.Annotations[kube.AnnotationModel] = d.model
	s := &api.Share{SM: &p.Status.Target.SM, Quota: &p.Status.Target.Quota, Memory: api.Quantity(fmt.Sprintf("%dMi", d.memoryMiB))}
	if plan.progress != nil {
		t.Annotations[kube.AnnotationIsolation] = string(share.MPS) // whatever the template says: the agent counts no kernels on a whole GPU
		controller.AddShare(t, s)
	} else {
		controller.CompleteTemplate(t, s, plan.protocol)
	}
	t.Annotations[kube.AnnotationTrialQuota] = strconv.FormatInt(p.Status.Target.Quota, 10) // may change for the next trial
	pod := &v1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	own(pod, p, targetPodName(p, &p.Status))
	pod.Spec.RestartPolicy = v1.RestartPolicyNever // if it ends, that is a result
	return pod
}

// clientPod returns the pod that sends the requests of the current attempt to a server at an address. It runs the controller's own image, so that both know the
// same version of jobs, and has no access rights.
func clientPod(p *api.GPUProfile, plan *plan, target *v1.Pod, address, image string) *v1.Pod {
	text, err := json.Marshal(jobOf(p, plan, address))
	if err != nil {
		panic(err) // cannot happen: it contains no channels or functions
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:                v1.RestartPolicyNever,
		SchedulerName:                target.Spec.SchedulerName, // known to exist
		ActiveDeadlineSeconds:        new(clientDeadline),
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		ImagePullSecrets:             plan.template.Spec.ImagePullSecrets,
		SecurityContext: &v1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []v1.Container{{
			Name: clientName, Image: image, Command: clientCommand, Env: []v1.EnvVar{{Name: JobVariable, Value: strings.ReplaceAll(string(text), "$", "$$")}}, // the kubelet would expand $(NAME)
			Resources: v1.ResourceRequirements{ // no CPU limit: a throttled client is late
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("128Mi")},
				Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
			},
			SecurityContext: &v1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
			},
		}},
	}}
	if plan.body != nil {
		addBody(&pod.Spec, plan.body)
	}
	own(pod, p, clientPodName(p, &p.Status))
	return pod
}

// bodyFolder is the client's folder for request bodies. The body is in a subfolder with the name of its ConfigMap.
const bodyFolder = "/var/run/gshare/request"

// addBody mounts a request body into a client. Users who may create profiles in a namespace may also create pods that mount the ConfigMap, so they can read no
// more than before.
func addBody(s *v1.PodSpec, from *api.BodyReference) {
	s.Volumes = []v1.Volume{{Name: "request", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: from.ConfigMap}, Items: []v1.KeyToPath{{Key: from.Key, Path: from.Key}},
	}}}}
	s.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "request", MountPath: bodyFolder + "/" + from.ConfigMap, ReadOnly: true}}
}

// jobOf returns the job of the client of the current attempt.
func jobOf(p *api.GPUProfile, plan *plan, address string) *profiler.Job {
	a, t := p.Status.Attempt, p.Status.Target
	j := &profiler.Job{Version: profiler.JobVersion, Address: address, Request: plan.request, Load: plan.load, Batch: a.Batch}
	if at := indexOf(&p.Status, t.SM, t.Quota, a.Batch); a.Confirm && at >= 0 {
		j.Confirm = p.Status.Points[at].RequestsPerSecond
	}
	return j
}

// own makes a pod belong to a profile.
func own(pod *v1.Pod, p *api.GPUProfile, name string) {
	pod.Namespace, pod.Name, pod.GenerateName = p.Namespace, name, ""
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, api.GroupVersion.WithKind(api.ProfileKind))}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	for _, l := range []string{api.LabelFunction, api.LabelInstance, api.LabelFaSTPod, api.LabelTemplate} {
		delete(pod.Labels, l)
	}
	pod.Labels[api.LabelProfile] = p.Name
}

// outcomeOf returns the outcome that the client of an attempt has left, or an error that says why there is none.
func outcomeOf(client *v1.Pod, j *profiler.Job) (*profiler.Outcome, error) {
	at := slices.IndexFunc(client.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.Name == clientName && c.State.Terminated != nil })
	if at < 0 {
		return nil, fmt.Errorf("the client did not run: %s %s", client.Status.Reason, client.Status.Message)
	}
	ended := client.Status.ContainerStatuses[at].State.Terminated
	o, err := profiler.DecodeOutcome(ended.Message, j)
	if err != nil {
		return nil, fmt.Errorf("the client ended with code %d (%s): %w", ended.ExitCode, ended.Reason, err)
	}
	return o, nil
}
