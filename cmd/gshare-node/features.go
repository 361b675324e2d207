package main

import (
	"errors"

	"k8s.io/component-base/featuregate"

	"github.com/gshare-dev/gshare/cmd/internal/features"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// refuse returns an error for each key of the configuration that needs a feature that is off.
func refuse(gates *features.Gates, c config.Kubernetes) error {
	var errs []error
	for _, key := range []struct {
		name    string
		set     bool
		feature featuregate.Feature
	}{
		{"modelStore", c.ModelStore, features.ModelStore},
		{"onDemand", len(c.OnDemand) > 0, features.MIGOnDemand},
		{"resourceClaims", len(c.ResourceClaims) > 0, features.ResourceClaims},
		{"swap", c.Swap != nil, features.Swap},
	} {
		if key.set {
			errs = append(errs, gates.Refuse(key.feature, "kubernetes."+key.name))
		}
	}
	return errors.Join(errs...)
}
