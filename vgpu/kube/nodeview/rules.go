package nodeview

import (
	"github.com/gshare-dev/gshare/vgpu/api/config/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Rules returns the packing rules for the arguments of a scheduler profile, whose defaults must be filled in.
func Rules(m packing.Model, args v1alpha1.SharingArgs) packing.Rules {
	rules := packing.NewRules(m)
	rules.Gamma = *args.GammaPercent * 10
	rules.MixTenants = args.Tenancy == v1alpha1.Mixed
	return rules
}
