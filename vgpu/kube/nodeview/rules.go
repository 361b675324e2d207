package nodeview

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// ErrRules is the error for a node whose agent would not run all shares that a scheduler profile admits; the profile does not use the node.
var ErrRules = errors.New("the node's gshare rules differ from the profile's")

// Rules returns the packer's rules for the gamma and tenancy of a node agent or a scheduler profile.
func Rules(m packing.Model, r kube.Rules) packing.Rules {
	rules := packing.NewRules(m)
	rules.Gamma, rules.MixTenants = r.GammaPercent*10, r.MixTenants
	return rules
}

// CheckRules returns an error that wraps ErrRules if a node with the published rules would refuse shares that a profile with the assumed rules
// admits, or if their windows differ. Nodes that allow more than the profile pass. Nil published rules, of an agent that does not publish
// any, pass too, and so does every window if the assumed one is 0.
func CheckRules(profile string, assumed kube.Rules, published *kube.Rules) error {
	if published == nil {
		return nil
	}
	var differences []string
	check := func(differ bool, field string, node, assumed any) {
		if differ {
			differences = append(differences, fmt.Sprintf("node enforces %s %v, profile %s assumes %v", field, node, profile, assumed))
		}
	}
	check(published.GammaPercent < assumed.GammaPercent, "gammaPercent", published.GammaPercent, assumed.GammaPercent)
	check(assumed.MixTenants && !published.MixTenants, "tenancy", "namespace", "mixed")
	window := assumed.Window.Duration
	check(window != 0 && window != published.Window.Duration, "window", published.Window.Duration, window)
	if len(differences) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRules, strings.Join(differences, "; "))
}
