package v1alpha1

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
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
// refuses unknown fields and does not fill in defaults.
func Decode(obj runtime.Object, into any) error {
	if obj == nil {
		return nil
	}
	raw, ok := obj.(*runtime.Unknown)
	if !ok {
		return fmt.Errorf("decode plugin args: want raw args, got %T", obj)
	}
	if err := yaml.UnmarshalStrict(raw.Raw, into); err != nil {
		return fmt.Errorf("decode plugin args: %w", err)
	}
	return nil
}

const (
	defaultGammaPercent   = 150
	defaultCandidateNodes = 64
	defaultAlphaPercent   = 60
)

// Default fills in the default of each argument that is not set.
func (a *SharingArgs) Default() {
	setDefault(&a.GammaPercent, defaultGammaPercent)
	setDefault(&a.CandidateNodes, defaultCandidateNodes)
	if a.Tenancy == "" {
		a.Tenancy = Namespace
	}
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

const maxGammaPercent = 1000

// Validate returns an error that names every argument that is out of range. Call it after Default.
func (a *SharingArgs) Validate() error {
	var errs []error
	if *a.GammaPercent < 100 || *a.GammaPercent > maxGammaPercent {
		errs = append(errs, fmt.Errorf("gammaPercent: %d is not between 100 and %d", *a.GammaPercent, maxGammaPercent))
	}
	if *a.CandidateNodes < 0 {
		errs = append(errs, fmt.Errorf("candidateNodes: %d is negative", *a.CandidateNodes))
	}
	if a.Tenancy != Namespace && a.Tenancy != Mixed {
		errs = append(errs, fmt.Errorf("tenancy: %q is neither %q nor %q", a.Tenancy, Namespace, Mixed))
	}
	if w := a.Window; w != nil && (w.Duration < 10*time.Millisecond || time.Second%w.Duration != 0) {
		errs = append(errs, fmt.Errorf("window: %v does not divide a second into parts of 10ms or more", w.Duration))
	}
	return errors.Join(errs...)
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
