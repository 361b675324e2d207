package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Args are the args of one plugin.
type Args interface {
	Default()
	Validate() error
}

// Load decodes, defaults and validates plugin args.
func Load(obj runtime.Object, into Args) error {
	if err := Decode(obj, into); err != nil {
		return err
	}
	into.Default()
	return into.Validate()
}

// Decode reads plugin args as the scheduler hands them over: nil when the user gave none, else raw JSON or YAML. Unknown
// fields are refused. The args are not defaulted.
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
