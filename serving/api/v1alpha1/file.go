package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// file is a GPUFunction as one machine can run it. Its fields are all that a file may contain. Fields that a machine and a cluster have in common
// have the same types.
type file struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   fileMeta `json:"metadata"`
	Spec       fileSpec `json:"spec"`
}

type fileMeta struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// fileSpec is a GPUFunctionSpec with a different template.
type fileSpec struct {
	GPUFunctionSpec `json:",inline"`
	Template        fileTemplate `json:"template"` // hides that of GPUFunctionSpec
}

type fileTemplate struct {
	Spec filePod `json:"spec"`
}

type filePod struct {
	Containers                    []fileContainer `json:"containers"`
	TerminationGracePeriodSeconds *int64          `json:"terminationGracePeriodSeconds,omitempty"`
}

type fileContainer struct {
	Name           string            `json:"name,omitempty"`
	Image          string            `json:"image,omitempty"` // refused
	Command        []string          `json:"command"`
	Args           []string          `json:"args,omitempty"`
	Env            []fileVariable    `json:"env,omitempty"`
	StartupProbe   *fileStartupProbe `json:"startupProbe,omitempty"`
	ReadinessProbe *fileProbe        `json:"readinessProbe,omitempty"`
}

type fileVariable struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

type fileProbe struct {
	HTTPGet fileHTTPGet `json:"httpGet"`
}

type fileStartupProbe struct {
	HTTPGet             *fileHTTPGet `json:"httpGet,omitempty"`
	InitialDelaySeconds int32        `json:"initialDelaySeconds,omitempty"`
	PeriodSeconds       int32        `json:"periodSeconds,omitempty"`
	FailureThreshold    int32        `json:"failureThreshold,omitempty"`
	TimeoutSeconds      int32        `json:"timeoutSeconds,omitempty"`
}

type fileHTTPGet struct {
	Path string `json:"path"`
}

func (g *fileHTTPGet) handler() v1.ProbeHandler {
	if g == nil {
		return v1.ProbeHandler{}
	}
	return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: g.Path}}
}

// function returns the function that the file describes, without defaults.
func (f *file) function() *GPUFunction {
	result := &GPUFunction{
		TypeMeta:   metav1.TypeMeta{APIVersion: f.APIVersion, Kind: f.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: f.Metadata.Name, Namespace: f.Metadata.Namespace},
		Spec:       f.Spec.GPUFunctionSpec,
	}
	pod := &result.Spec.Template.Spec
	pod.TerminationGracePeriodSeconds = f.Spec.Template.Spec.TerminationGracePeriodSeconds
	for _, c := range f.Spec.Template.Spec.Containers {
		pod.Containers = append(pod.Containers, c.container())
	}
	return result
}

func (c *fileContainer) container() v1.Container {
	result := v1.Container{Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args}
	for _, v := range c.Env {
		result.Env = append(result.Env, v1.EnvVar{Name: v.Name, Value: v.Value})
	}
	if c.ReadinessProbe != nil {
		result.ReadinessProbe = &v1.Probe{ProbeHandler: c.ReadinessProbe.HTTPGet.handler()}
	}
	if p := c.StartupProbe; p != nil {
		result.StartupProbe = &v1.Probe{
			ProbeHandler: p.HTTPGet.handler(), InitialDelaySeconds: p.InitialDelaySeconds, PeriodSeconds: p.PeriodSeconds,
			FailureThreshold: p.FailureThreshold, TimeoutSeconds: p.TimeoutSeconds,
		}
	}
	return result
}
