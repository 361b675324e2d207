package rebalancing

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// Args are the arguments of the plugin in a DeschedulerPolicy.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// Scheduler is the profile of gshare-scheduler whose pods are moved; gshare if empty.
	Scheduler string `json:"scheduler,omitempty"`
	// GammaPercent and MixTenants are the gamma and the tenancy of that profile; 150 if the first is 0.
	GammaPercent int64 `json:"gammaPercent,omitempty"`
	MixTenants   bool  `json:"mixTenants,omitempty"`

	// MovesPerGPU is the most pods to evict to free one GPU; 10 if 0.
	MovesPerGPU int `json:"movesPerGPU,omitempty"`
	// Rest is how long the pods of an owner are left alone after one of them was moved; 30m if 0.
	Rest metav1.Duration `json:"rest,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (a *Args) DeepCopyObject() runtime.Object {
	same := *a
	return &same
}

// Default fills in what a policy leaves out.
func Default(o runtime.Object) {
	a := o.(*Args)
	if a.Scheduler == "" {
		a.Scheduler = kube.SchedulerName
	}
	if a.GammaPercent == 0 {
		a.GammaPercent = 150
	}
	if a.MovesPerGPU == 0 {
		a.MovesPerGPU = rebalance.DefaultPerDevice
	}
	if a.Rest.Duration == 0 {
		a.Rest.Duration = 30 * time.Minute
	}
}

// Validate returns what is wrong with the arguments. The descheduler validates before it fills in defaults, so 0 is right.
func Validate(o runtime.Object) error {
	a := o.(*Args)
	var errs []error
	if a.GammaPercent != 0 && a.GammaPercent < 100 {
		errs = append(errs, fmt.Errorf("gammaPercent: %d is below 100", a.GammaPercent))
	}
	if a.MovesPerGPU < 0 {
		errs = append(errs, fmt.Errorf("movesPerGPU: %d is negative", a.MovesPerGPU))
	}
	if a.Rest.Duration < 0 {
		errs = append(errs, fmt.Errorf("rest: %v is negative", a.Rest.Duration))
	}
	return errors.Join(errs...)
}
