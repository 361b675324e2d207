package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestComplementaryPackingArgs(t *testing.T) {
	for name, c := range map[string]struct {
		raw         string
		alpha, beta int64
		wantErr     string
	}{
		"none":            {"{}", 60, 40, ""},
		"alpha":           {"{alphaPercent: 75}", 75, 25, ""},
		"beta":            {"{betaPercent: 100}", 0, 100, ""},
		"both":            {"{alphaPercent: 30, betaPercent: 70}", 30, 70, ""},
		"shared args":     {"{candidateNodes: 8}", 60, 40, ""},
		"not 100":         {"{alphaPercent: 30, betaPercent: 60}", 0, 0, "add up to 100"},
		"negative":        {"{alphaPercent: -1}", 0, 0, "alphaPercent: -1"},
		"more than whole": {"{betaPercent: 101}", 0, 0, "betaPercent: 101"},
		"gamma":           {"{gammaPercent: 150}", 0, 0, "gammaPercent: is now set on the nodes"},
		"unknown field":   {"{alpha: 0.6}", 0, 0, "alpha"},
	} {
		t.Run(name, func(t *testing.T) {
			var args ComplementaryPackingArgs
			err := Load(&runtime.Unknown{Raw: []byte(c.raw)}, &args)
			switch {
			case c.wantErr == "" && err != nil:
				t.Errorf("%v", err)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("error %v does not mention %s", err, c.wantErr)
			case c.wantErr == "" && (*args.AlphaPercent != c.alpha || *args.BetaPercent != c.beta):
				t.Errorf("weights %d and %d, want %d and %d", *args.AlphaPercent, *args.BetaPercent, c.alpha, c.beta)
			}
		})
	}
}
