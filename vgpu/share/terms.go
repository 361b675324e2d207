package share

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// MaxModels is the maximum number of GPU models that a pod may name.
const MaxModels = 16

// RawTerms holds the values of a pod's annotations that become its Terms, as the user wrote them; an empty field stands for a missing annotation.
type RawTerms struct {
	Class       string // a priority class; default best-effort
	Isolation   string // default: what satisfies the share
	Model       string // comma-separated device models; default every model
	Workload    string
	Slice       string // default gpu
	Enforcement string // default strict
	Weights     string // default none
	Packing     string // default: what the profile prefers

	AntiAffinity string // default none
}

// NewTerms validates the conditions that a user wrote in a pod's annotations, and sets the defaults. Errors are *FieldError.
func NewTerms(raw RawTerms) (Terms, error) {
	weights, err := ParseWeights(raw.Weights)
	if err != nil {
		return Terms{}, err
	}
	t := Terms{
		Isolation:   Isolation(raw.Isolation),
		Priority:    cmp.Or(Priority(raw.Class), BestEffort),
		Models:      splitModels(raw.Model),
		Workload:    raw.Workload,
		Slice:       cmp.Or(raw.Slice, WholeGPU),
		Enforcement: cmp.Or(Enforcement(raw.Enforcement), Strict),
		Weights:     weights,
		Packing:     Packing(raw.Packing),

		AntiAffinity: raw.AntiAffinity,
	}
	if err := t.Validate(); err != nil {
		return Terms{}, err
	}
	return t, nil
}

// Validate returns an error for unknown values, and for GPU models or weights that are not sorted and distinct. Errors are *FieldError.
func (t Terms) Validate() error {
	switch {
	case t.Isolation != AnyIsolation && !t.Isolation.Schedulable():
		return Invalid(FieldIsolation, "%.64q is none of exclusive, mps, elastic, swap", string(t.Isolation))
	case !t.Priority.Valid():
		return Invalid(FieldClass, "%.64q is neither slo nor best-effort", string(t.Priority))
	case t.Enforcement != Strict && t.Enforcement != BestEffortEnforcement:
		return Invalid(FieldEnforcement, "%.64q is neither strict nor best-effort", string(t.Enforcement))
	case !validSlice(t.Slice):
		return invalidSlice(FieldSlice, t.Slice)
	case t.Packing != AnyPacking && t.Packing != Binpack && t.Packing != Spread:
		return Invalid(FieldPacking, "%.64q is neither binpack nor spread", string(t.Packing))
	case t.Isolation == Swap && t.Enforcement != Strict: // memory that is not limited cannot be taken away between turns
		return Invalid(FieldIsolation, "swap needs %s strict", FieldEnforcement)
	case t.Isolation == Swap && len(t.Weights) > 0: // weights stay on the slice, and would not be taken away between turns
		return Invalid(FieldIsolation, "swap cannot be had with %s", FieldWeights)
	}
	return cmp.Or(validateKey(FieldWorkload, t.Workload), ValidateAntiAffinity(t.AntiAffinity), validateModels(t.Models), ValidateWeights(t.Weights))
}

// ValidateAntiAffinity returns an error for a text that is not an anti-affinity key. Errors are *FieldError.
func ValidateAntiAffinity(key string) error { return validateKey(FieldAntiAffinity, key) }

func validateKey(field, key string) error {
	if key != "" && !keyPattern.MatchString(key) {
		return Invalid(field, "%.64q is not a label value of at most 63 letters, digits, '-', '_' and '.'", key)
	}
	return nil
}

// validSlice reports whether the text names a kind of slice that a pod may ask for.
func validSlice(kind string) bool { return kind == WholeGPU || kind == AnyMIG || ValidProfile(kind) }

func invalidSlice(field, kind string) error {
	return Invalid(field, "%.64q is neither gpu, mig nor a MIG profile such as 1g.18gb", kind)
}

// Schedulable reports whether gshare can place shares on slices of this isolation class.
func (i Isolation) Schedulable() bool { return i == Exclusive || i == MPS || i == Elastic || i == Swap }

// Valid reports whether p is one of the priority classes, slo or best-effort.
func (p Priority) Valid() bool { return p == SLO || p == BestEffort }

// ValidProfile reports whether name has the form of a MIG profile: 1g.18gb, 1g.10gb+me, 1g.24gb-me.
func ValidProfile(name string) bool { return profilePattern.MatchString(name) }

// ValidModel reports whether name can be the name of a GPU model: printable ASCII, without comma or outer space, at most 63 bytes.
func ValidModel(name string) bool { return modelPattern.MatchString(name) }

var (
	// profilePattern matches MIG profiles of GPU instances, with the attributes of NVIDIA's mig-parted. Compute instances (1c.2g.10gb) are
	// not slices.
	profilePattern = regexp.MustCompile(`^[1-9]g\.[1-9][0-9]{0,3}gb(\+me|\+me\.all|\+gfx|-me)?$`)
	modelPattern   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9 ._/+-]{0,61}[A-Za-z0-9])?$`)
	keyPattern     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

func splitModels(list string) []string {
	if list == "" {
		return nil
	}
	names := strings.SplitN(list, ",", 4*MaxModels) // bounded; what is left of a longer list is not a valid name
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func validateModels(models []string) error {
	if len(models) > MaxModels {
		return Invalid(FieldModel, "more than %d models", MaxModels)
	}
	for i, name := range models {
		if !ValidModel(name) {
			return Invalid(FieldModel, "%.64q is not a device model such as A100", name)
		}
		if i > 0 && models[i-1] >= name {
			return Invalid(FieldModel, "%.64q is out of order or named twice", name)
		}
	}
	return nil
}
