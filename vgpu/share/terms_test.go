package share

import (
	"reflect"
	"strings"
	"testing"
)

func TestNewTermsDefaults(t *testing.T) {
	got, err := NewTerms(RawTerms{})
	want := Terms{Priority: BestEffort, Slice: WholeGPU, Enforcement: Strict}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("NewTerms = %+v, %v, want %+v", got, err, want)
	}
}

func TestNewTerms(t *testing.T) {
	raw := RawTerms{
		Class: "slo", Isolation: "mps", Model: " H200,A100 , NVIDIA A100-SXM4-40GB,H200", Workload: "resnet_50.v2",
		Slice: "1g.10gb+me", Enforcement: "best-effort", Packing: "spread", AntiAffinity: "resnet-replicas",
	}
	want := Terms{
		Priority: SLO, Isolation: MPS, Models: []string{"A100", "H200", "NVIDIA A100-SXM4-40GB"}, Workload: "resnet_50.v2",
		Slice: "1g.10gb+me", Enforcement: BestEffortEnforcement, Packing: Spread, AntiAffinity: "resnet-replicas",
	}
	if got, err := NewTerms(raw); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("NewTerms = %+v, %v, want %+v", got, err, want)
	}
}

func TestNewTermsRefuses(t *testing.T) {
	cases := map[string]struct {
		raw     RawTerms
		wantErr string
	}{
		"class":            {RawTerms{Class: "gold"}, `gshare.dev/class: "gold" is neither slo nor best-effort`},
		"class in capital": {RawTerms{Class: "SLO"}, "gshare.dev/class: "},
		"isolation":        {RawTerms{Isolation: "mig"}, `gshare.dev/isolation: "mig" is none of exclusive, mps, elastic, swap`},
		"swap, unlimited":  {RawTerms{Isolation: "swap", Enforcement: "best-effort"}, "gshare.dev/isolation: swap needs gshare.dev/enforcement strict"},
		"swap of weights":  {RawTerms{Isolation: "swap", Weights: "sha256:" + strings.Repeat("0", 64) + "=1Gi"}, "gshare.dev/isolation: swap cannot be had with gshare.dev/weights"},
		"enforcement":      {RawTerms{Enforcement: "none"}, "gshare.dev/enforcement: "},
		"slice":            {RawTerms{Slice: "1g"}, `gshare.dev/slice: "1g" is neither gpu, mig nor a MIG profile`},
		"slice with space": {RawTerms{Slice: "gpu "}, "gshare.dev/slice: "},
		"workload":         {RawTerms{Workload: "a b"}, "gshare.dev/workload: "},
		"long workload":    {RawTerms{Workload: strings.Repeat("a", 64)}, "gshare.dev/workload: "},
		"packing":          {RawTerms{Packing: "Spread"}, `gshare.dev/packing: "Spread" is neither binpack nor spread`},
		"anti-affinity":    {RawTerms{AntiAffinity: "a b"}, `gshare.dev/anti-affinity: "a b" is not a label value`},
		"long key":         {RawTerms{AntiAffinity: strings.Repeat("a", 64)}, "gshare.dev/anti-affinity: "},
		"empty model":      {RawTerms{Model: "A100,,H200"}, `gshare.dev/model: "" is not a device model`},
		"only commas":      {RawTerms{Model: ","}, "gshare.dev/model: "},
		"only space":       {RawTerms{Model: " "}, "gshare.dev/model: "},
		"model with quote": {RawTerms{Model: `A"100`}, "gshare.dev/model: "},
		"model not UTF-8":  {RawTerms{Model: "A\xff"}, "gshare.dev/model: "},
		"long model":       {RawTerms{Model: strings.Repeat("a", 64)}, "gshare.dev/model: "},
		"many models":      {RawTerms{Model: "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, "gshare.dev/model: more than 16 models"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := NewTerms(tc.raw)
			wantRefusal(t, err, tc.wantErr)
			if !reflect.DeepEqual(got, Terms{}) {
				t.Errorf("refused terms are %+v, want none", got)
			}
		})
	}
}

func TestTermsValidateWantsModelsInOrder(t *testing.T) {
	for _, models := range [][]string{{"B", "A"}, {"A", "A"}} {
		terms := Terms{Priority: SLO, Slice: WholeGPU, Enforcement: Strict, Models: models}
		wantRefusal(t, terms.Validate(), "gshare.dev/model: ")
	}
}

func TestValidProfile(t *testing.T) {
	for _, name := range []string{"1g.5gb", "1g.18gb", "2g.20gb", "7g.141gb", "1g.10gb+me", "1g.12gb+me.all", "1g.24gb+gfx", "1g.24gb-me"} {
		if !ValidProfile(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "gpu", "1g", "0g.5gb", "1g.0gb", "1g.05gb", "10g.5gb", "1g.5GB", "1G.5gb", "1c.1g.5gb", "1g.5gb+", "1g.5gb+me+me",
		" 1g.5gb", "1g.5gb\n", "1g5gb", "1g.99999gb", "mig-1g.5gb"} {
		if ValidProfile(name) {
			t.Errorf("%q is accepted", name)
		}
	}
}
