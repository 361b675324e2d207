package nodeview

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

func TestCheckRules(t *testing.T) {
	const differ = "the node's gshare rules differ from the profile's: "
	window := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	node := &kube.Rules{GammaPercent: 150, Window: window(50 * time.Millisecond)}
	for name, c := range map[string]struct {
		assumed   kube.Rules
		published *kube.Rules
		want      string
	}{
		"alike":            {kube.Rules{GammaPercent: 150, Window: window(50 * time.Millisecond)}, node, ""},
		"any window":       {kube.Rules{GammaPercent: 150}, node, ""},
		"stricter profile": {kube.Rules{GammaPercent: 100}, &kube.Rules{GammaPercent: 200, MixTenants: true}, ""},
		"not published":    {kube.Rules{GammaPercent: 1000, MixTenants: true, Window: window(time.Second)}, nil, ""},
		"gamma":            {kube.Rules{GammaPercent: 200}, node, "node enforces gammaPercent 150, profile gshare assumes 200"},
		"tenancy":          {kube.Rules{GammaPercent: 150, MixTenants: true}, node, "node enforces tenancy namespace, profile gshare assumes mixed"},
		"window":           {kube.Rules{GammaPercent: 150, Window: window(100 * time.Millisecond)}, node, "node enforces window 50ms, profile gshare assumes 100ms"},
		"two": {kube.Rules{GammaPercent: 151, MixTenants: true}, node,
			"node enforces gammaPercent 150, profile gshare assumes 151; node enforces tenancy namespace, profile gshare assumes mixed"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckRules("gshare", c.assumed, c.published)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, ErrRules) || err.Error() != differ+c.want):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
