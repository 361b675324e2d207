package controller

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// fastPodOf returns the FaSTPod whose pods are the replicas of a function with its present share and template. As with the ReplicaSets of a
// Deployment, its name depends on these. The function must be complete.
func fastPodOf(f *api.GPUFunction) *api.FaSTPod {
	spec := api.FaSTPodSpec{
		Share: *f.Spec.Resources.Share, Replicas: new(int32(0)), Template: *f.Spec.Template.DeepCopy(),
		FunctionRef: &api.FunctionReference{Name: f.Name},
	}
	CompleteTemplate(&spec.Template, &spec.Share, f.Spec.Protocol)
	setLabel(&spec.Template.ObjectMeta, api.LabelFunction, f.Name)
	name := f.Name + "-" + hashOf(&spec)
	return &api.FaSTPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: name, Labels: map[string]string{api.LabelFunction: f.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, api.GroupVersion.WithKind(api.Kind))},
		},
		Spec: spec,
	}
}

// hashOf returns a text of 8 characters that depends on the meaning of the specification, not on its notation.
func hashOf(s *api.FaSTPodSpec) string {
	share, template := canonical(s)
	text, err := json.Marshal(struct {
		Share    api.Share
		Template v1.PodTemplateSpec
	}{share, template})
	if err != nil {
		panic(err) // cannot happen: it came from JSON
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:5]))
}

// functionPod returns a pod of a function's FaSTPod, for the instance with a number.
func functionPod(fp *api.FaSTPod, name string, instance int) *v1.Pod {
	p := podOf(fp, name)
	setLabel(&p.ObjectMeta, api.LabelInstance, strconv.Itoa(instance))
	return p
}

// standaloneName returns the name of a pod of a FaSTPod that a user has written. It exists because making the pod takes long if the template is large.
func standaloneName(fp *api.FaSTPod, number int) string { return fmt.Sprintf("%s-%d", fp.Name, number) }

// standalonePod returns a pod of a FaSTPod that a user has written.
func standalonePod(fp *api.FaSTPod, number int) *v1.Pod {
	p := podOf(fp, standaloneName(fp, number))
	delete(p.Labels, api.LabelInstance) // with the label of a function it is still a replica, if another autoscaler scales the function
	t := v1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	AddShare(&t, &fp.Spec.Share)
	p.ObjectMeta, p.Spec = t.ObjectMeta, t.Spec
	setLabel(&p.ObjectMeta, api.LabelTemplate, hashOf(&fp.Spec))
	return p
}

func podOf(fp *api.FaSTPod, name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: *fp.Spec.Template.ObjectMeta.DeepCopy(), Spec: *fp.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = fp.Namespace, name
	DropReserved(p.Annotations)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(fp, api.GroupVersion.WithKind(api.FaSTPodKind))}
	setLabel(&p.ObjectMeta, api.LabelFaSTPod, fp.Name)
	return p
}

// DropReserved removes the annotations that only gshare may set, by the admission policy gshare-residency: a user's template must not get through the
// controller what the API server refuses to users.
func DropReserved(annotations map[string]string) {
	for _, a := range []string{
		kube.AnnotationResidency, kube.AnnotationResidencyReached, kube.AnnotationTrialQuota, api.AnnotationAtOnce, api.AnnotationDrain, api.AnnotationMovesFrom,
	} {
		delete(annotations, a)
	}
}

// CompleteTemplate adds to a function's template what a replica needs: the port, a readiness probe if there is none, and the share.
func CompleteTemplate(t *v1.PodTemplateSpec, s *api.Share, protocol api.Protocol) {
	c := &t.Spec.Containers[0]
	port := kube.ServerPort(&t.Spec)
	if port == kube.DefaultServerPort {
		addPort(c)
	}
	setVariable(c, api.PortVariable, strconv.Itoa(int(port)))
	if c.ReadinessProbe == nil {
		c.ReadinessProbe = &v1.Probe{ProbeHandler: readiness(protocol, port), PeriodSeconds: 1, FailureThreshold: 3}
	}
	AddShare(t, s)
}

// AddShare gives the first container of a pod a share, completed in the same way as by the admission policy where that is installed.
func AddShare(t *v1.PodTemplateSpec, s *api.Share) {
	c := &t.Spec.Containers[0]
	if c.Resources.Limits == nil {
		c.Resources.Limits = v1.ResourceList{}
	} else {
		c.Resources.Limits = maps.Clone(c.Resources.Limits)
	}
	memory, gpus := resource.MustParse(string(s.Memory)), s.Count() // cannot fail in a complete function
	for name, value := range map[v1.ResourceName]int64{
		kube.ResourceSM: *s.SM * gpus, kube.ResourceQuota: quotaOf(s), kube.ResourceMemory: ((memory.Value()-1)/int64(share.MiB) + 1) * gpus, kube.ResourceVGPU: gpus,
	} {
		c.Resources.Limits[name] = *resource.NewQuantity(value, resource.DecimalSI)
	}
	if s.SMLimit != nil {
		setAnnotation(&t.ObjectMeta, kube.AnnotationSMLimit, strconv.FormatInt(*s.SMLimit, 10))
	}
	if s.QuotaLimit != nil {
		setAnnotation(&t.ObjectMeta, kube.AnnotationQuotaLimit, strconv.FormatInt(*s.QuotaLimit, 10))
	}
	p := &v1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	kube.Complete(p)
	t.ObjectMeta, t.Spec = p.ObjectMeta, p.Spec
}

// addPort adds the default port under its name, unless the container already declares it under a name of its own.
func addPort(c *v1.Container) {
	for _, p := range c.Ports {
		if p.ContainerPort == kube.DefaultServerPort || p.Name == kube.ServerPortName {
			return
		}
	}
	c.Ports = append(c.Ports, v1.ContainerPort{Name: kube.ServerPortName, ContainerPort: kube.DefaultServerPort})
}

// readiness returns the probe for a server whose template has none: OIP defines a path; of other servers it is only known whether they listen.
func readiness(protocol api.Protocol, port int32) v1.ProbeHandler {
	if protocol == api.OIP {
		return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/v2/health/ready", Port: intstr.FromInt32(port)}}
	}
	return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}
}

func quotaOf(s *api.Share) int64 {
	if s.Quota == nil {
		return 100
	}
	return *s.Quota
}

// setVariable sets an environment variable of a container, unless the user has set it.
func setVariable(c *v1.Container, name, value string) {
	for _, v := range c.Env {
		if v.Name == name {
			return
		}
	}
	c.Env = append(c.Env, v1.EnvVar{Name: name, Value: value})
}

func setLabel(m *metav1.ObjectMeta, name, value string) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[name] = value
}

func setAnnotation(m *metav1.ObjectMeta, name, value string) {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[name] = value
}

// instanceOf returns the function and the number of the instance that a pod belongs to.
func instanceOf(p *v1.Pod) (function string, instance int, err error) {
	function = p.Labels[api.LabelFunction]
	instance, err = strconv.Atoi(p.Labels[api.LabelInstance])
	if err != nil || instance < 1 || function == "" {
		return "", 0, fmt.Errorf("labels %s=%.64q, %s=%.64q are not those of an instance of a function",
			api.LabelFunction, function, api.LabelInstance, p.Labels[api.LabelInstance])
	}
	return function, instance, nil
}
