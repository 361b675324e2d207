package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Pipeline says how a replica may be split into stages. gshare runs it whole on one MIG instance, or splits it into parts, each a container with its
// own instance.
type Pipeline struct {
	// stages are the smallest parts, as measured by python -m gshare build: up to 12. gshare runs one or more of them in a container.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=12
	Stages []Stage `json:"stages"`

	// transfer is the time to pass the largest value from one stage to another in a different container.
	// +optional
	// +kubebuilder:default="1ms"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('1h')",message="want a duration of at most 1h, such as 1ms"
	Transfer Duration `json:"transfer,omitempty"`
}

// Stage is one component of a function.
type Stage struct {
	// name is the name of a component in the program.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// dependsOn names the stages whose results this stage takes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=12
	// +kubebuilder:validation:items:MaxLength=63
	DependsOn []string `json:"dependsOn,omitempty"`

	// memory is the peak device memory, including weights, with a unit.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('1Pi')) <= 0",message="want a quantity of 1Mi to 1Pi, such as 1525Mi"
	Memory Quantity `json:"memory"`

	// times are the times of one request, by the MIG profile of the instance. The stage runs on no other profile.
	// +required
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Times []StageTime `json:"times"`
}

// StageTime is how long a stage takes on one kind of MIG instance.
type StageTime struct {
	// profile is a MIG profile, such as 1g.10gb.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[1-9]g\.[1-9][0-9]{0,3}gb(\+me|\+me\.all|\+gfx|-me)?$`
	Profile string `json:"profile"`

	// time is the time of one request, up to 1h, such as 12ms.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) > duration('0s') && duration(self) <= duration('1h')",message="want a duration of up to 1h, such as 12ms"
	Time Duration `json:"time"`
}

// Bytes returns the memory of a stage, or 0 if it is not a quantity.
func (s *Stage) Bytes() share.Bytes {
	q, err := s.Memory.Parse()
	if err != nil {
		return 0
	}
	return share.Bytes(q.Value())
}

// setShare gives a function with a pipeline the share that it has on an instance that holds all of it: the whole instance.
func (p *Pipeline) setShare(r *Resources) {
	var memory share.Bytes
	for i := range p.Stages {
		memory += p.Stages[i].Bytes()
	}
	r.Share = &Share{SM: new(int64(100)), Memory: Quantity(fmt.Sprintf("%dMi", (memory-1)/share.MiB+1))}
}

// validatePipeline returns an error for fields that a function with a pipeline cannot have.
func (s *GPUFunctionSpec) validatePipeline(field string) error {
	if s.Pipeline == nil {
		return nil
	}
	var has []string
	for name, there := range map[string]bool{
		"profileRef": s.ProfileRef != nil, "scaling.keepWarm": s.Scaling.KeepWarm != "", "scaling.autoscaler": s.Scaling.Autoscaler == External,
	} {
		if there {
			has = append(has, name)
		}
	}
	if len(has) > 0 {
		return share.Invalid(field+".pipeline", "want no %s with it", strings.Join(has, ", "))
	}
	for _, c := range s.Template.Spec.Containers {
		if len(c.Name) > maxStagedName {
			return share.Invalid(field+".pipeline", "want a name of at most %d characters for the container of the template", maxStagedName)
		}
	}
	for _, c := range slices.Concat(s.Template.Spec.InitContainers, s.Template.Spec.Containers) {
		if strings.HasPrefix(c.Name, StagePrefix) {
			return share.Invalid(field+".pipeline", "want no container %.64s in the template: the stages have such names", c.Name)
		}
	}
	return nil
}

// StagePrefix begins the names of the containers that a replica with a pipeline has in addition to those of its template.
const StagePrefix = "gshare-stage-"

// maxStagedName is the maximum length of a container name that can be part of an annotation name, after gshare.dev/slice and a dot.
const maxStagedName = 63 - len("slice.")
