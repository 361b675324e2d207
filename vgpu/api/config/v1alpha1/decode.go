package v1alpha1

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
)

// Args is implemented by the arguments of each scheduler plugin.
type Args interface {
	Default()
	Validate() error
}

// Load decodes the arguments of a scheduler plugin, fills in the defaults and validates them.
func Load(obj runtime.Object, into Args) error {
	if err := Decode(obj, into); err != nil {
		return err
	}
	into.Default()
	return into.Validate()
}

// Decode decodes the arguments of a plugin as kube-scheduler passes them: nil if the user has set none, otherwise raw JSON or YAML. It
// refuses unknown fields, and those of earlier versions with advice, and does not fill in defaults.
func Decode(obj runtime.Object, into any) error {
	if obj == nil {
		return nil
	}
	raw, ok := obj.(*runtime.Unknown)
	if !ok {
		return fmt.Errorf("decode plugin args: want raw args, got %T", obj)
	}
	var fields map[string]any
	if yaml.Unmarshal(raw.Raw, &fields) == nil { // UnmarshalStrict returns the error
		for _, name := range []string{"gammaPercent", "tenancy", "window"} {
			if _, set := fields[name]; set {
				return NodeSettingError(name, name)
			}
		}
	}
	if err := strictyaml.Unmarshal(raw.Raw, into); err != nil {
		return fmt.Errorf("decode plugin args: %w", err)
	}
	return nil
}

// NodeSettingError returns the error for an argument that earlier versions of the scheduler and of the descheduler's plugin had, and that
// is now the given field in the configuration of node agents.
func NodeSettingError(argument, field string) error {
	return fmt.Errorf("%s: is now set on the nodes: remove it here, and set %s in the configuration of the node agents "+
		"(node.yaml; with Helm, the value config)", argument, field)
}

const (
	defaultCandidateNodes = 64
	defaultAlphaPercent   = 60
)

// Default fills in the default of each argument that is not set.
func (a *SharingArgs) Default() {
	setDefault(&a.CandidateNodes, defaultCandidateNodes)
}

// Default fills in the default of each argument that is not set.
func (a *SlotPackingArgs) Default() {
	a.SharingArgs.Default()
	setDefault(&a.Balance.Fragmentation, true)
	setDefault(&a.Balance.Stranding, true)
	setDefault(&a.Balance.CPUShortage, true)
	setDefault(&a.Balance.Scarcity, true)
}

// Default fills in the default of each argument that is not set. If only one of the weights is set, the other becomes the rest of 100
// percent.
func (a *ComplementaryPackingArgs) Default() {
	a.SharingArgs.Default()
	if a.BetaPercent != nil {
		setDefault(&a.AlphaPercent, 100-*a.BetaPercent)
	}
	setDefault(&a.AlphaPercent, defaultAlphaPercent)
	setDefault(&a.BetaPercent, 100-*a.AlphaPercent)
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Validate returns an error that names every argument that is out of range. Call it after Default.
func (a *SharingArgs) Validate() error {
	if *a.CandidateNodes < 0 {
		return fmt.Errorf("candidateNodes: %d is negative", *a.CandidateNodes)
	}
	return nil
}

// Validate returns an error that names every argument that is out of range. Call it after Default.
func (a *ComplementaryPackingArgs) Validate() error {
	errs := []error{a.SharingArgs.Validate()}
	alpha, beta := *a.AlphaPercent, *a.BetaPercent
	if alpha < 0 || alpha > 100 || alpha+beta != 100 {
		errs = append(errs, fmt.Errorf("alphaPercent: %d and betaPercent: %d do not add up to 100", alpha, beta))
	}
	return errors.Join(errs...)
}
