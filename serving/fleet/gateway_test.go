package fleet

import (
	"slices"
	"testing"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestGatewayFunction checks that a gateway learns what a function says about its requests.
func TestGatewayFunction(t *testing.T) {
	of := api.GPUFunction{}
	of.Name, of.Namespace = "chat", "team"
	of.Spec.Protocol, of.Spec.SLO = api.OpenAI, api.SLO{Latency: "1s", TimePerToken: "50ms"}
	of.Spec.Model.Aliases, of.Spec.Access.Namespaces = []string{"org/Model"}, []string{"web"}
	of.Spec.Idempotent = true
	f := GatewayFunction(&of)
	if f.String() != "team/chat" || f.Protocol.String() != "OpenAI" || f.SLO.String() != "1s" || f.TimePerToken.String() != "50ms" || !f.Idempotent ||
		!slices.Equal(f.Aliases, []string{"org/Model"}) || !slices.Equal(f.Callers, []string{"web"}) {
		t.Errorf("%+v", f)
	}
}
