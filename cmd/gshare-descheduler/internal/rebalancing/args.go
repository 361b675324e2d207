package rebalancing

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/api/config/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// Args are the arguments of the plugin in a DeschedulerPolicy.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// Scheduler is the profile of gshare-scheduler whose pods are moved; gshare if empty.
	Scheduler string `json:"scheduler,omitempty"`
	// GammaPercent and MixTenants are arguments of earlier versions, which Validate refuses: they are set on the nodes.
	GammaPercent *int64 `json:"gammaPercent,omitempty"`
	MixTenants   *bool  `json:"mixTenants,omitempty"`

	// MovesPerGPU is the largest number of pods to evict in order to free one GPU; 10 if 0.
	MovesPerGPU int `json:"movesPerGPU,omitempty"`
	// Rest is how long no pod of an owner is moved after one of them was; 30m if 0.
	Rest metav1.Duration `json:"rest,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (a *Args) DeepCopyObject() runtime.Object {
	same := *a
	return &same
}

// Default sets the arguments that a policy leaves out.
func Default(o runtime.Object) {
	a := o.(*Args)
	if a.Scheduler == "" {
		a.Scheduler = kube.SchedulerName
	}
	if a.MovesPerGPU == 0 {
		a.MovesPerGPU = rebalance.DefaultPerDevice
	}
	if a.Rest.Duration == 0 {
		a.Rest.Duration = 30 * time.Minute
	}
}

// Validate returns an error for invalid arguments. 0 is valid, because the descheduler validates before it sets defaults.
func Validate(o runtime.Object) error {
	a := o.(*Args)
	var errs []error
	if a.GammaPercent != nil {
		errs = append(errs, v1alpha1.NodeSettingError("gammaPercent", "gammaPercent"))
	}
	if a.MixTenants != nil {
		errs = append(errs, v1alpha1.NodeSettingError("mixTenants", "tenancy: mixed"))
	}
	if a.MovesPerGPU < 0 {
		errs = append(errs, fmt.Errorf("movesPerGPU: %d is negative", a.MovesPerGPU))
	}
	if a.Rest.Duration < 0 {
		errs = append(errs, fmt.Errorf("rest: %v is negative", a.Rest.Duration))
	}
	return errors.Join(errs...)
}
