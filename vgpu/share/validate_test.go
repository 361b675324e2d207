package share

import (
	"math"
	"testing"
)

var (
	plainTerms = Terms{Priority: BestEffort, Slice: WholeGPU, Enforcement: Strict}
	timeShare  = Share{240, 240, 400, 800, MiB}
	smShare    = Share{240, 480, 1000, 1000, MiB}
)

// asking returns a container of that name with so many vGPUs of the share.
func asking(name string, vgpus int, s Share) Container {
	return Container{Name: name, VGPUs: vgpus, Share: s}
}

func TestShareValidateRefuses(t *testing.T) {
	cases := map[string]struct {
		share   Share
		wantErr string
	}{
		"zero":             {Share{}, "gshare/sm: 0 per mille is outside 1 to 1000"},
		"sm":               {Share{1001, 1001, 1000, 1000, 1}, "gshare/sm: "},
		"least sm":         {Share{math.MinInt32, 1000, 1000, 1000, 1}, "gshare/sm: "},
		"quota":            {Share{1, 1, 0, 1, 1}, "gshare/quota: "},
		"memory":           {Share{1, 1, 1, 1, 0}, "gshare/mem: 0 bytes"},
		"much memory":      {Share{1, 1, 1, 1, MaxMemory + 1}, "gshare/mem: "},
		"low sm limit":     {Share{245, 240, 1000, 1000, 1}, "gshare.dev/sm-limit: 24% is below the request of 24.5%"},
		"high sm limit":    {Share{240, 1001, 1000, 1000, 1}, "gshare.dev/sm-limit: "},
		"low quota limit":  {Share{240, 240, 400, 399, 1}, "gshare.dev/quota-limit: "},
		"high quota limit": {Share{240, 240, 400, math.MaxInt32, 1}, "gshare.dev/quota-limit: "},
		"both elastic":     {Share{240, 241, 999, 1000, 1}, "gshare.dev/sm-limit: SMs above the request"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { wantRefusal(t, tc.share.Validate(), tc.wantErr) })
	}
	for _, s := range []Share{timeShare, smShare, {1, 1, 1, 1, 1}, {1000, 1000, 1000, 1000, MaxMemory}} {
		if err := s.Validate(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

func TestAllowedIn(t *testing.T) {
	cases := map[string]struct {
		share   Share
		class   Isolation
		wantErr string // empty is allowed
	}{
		"exclusive takes a part of time": {timeShare, Exclusive, ""},
		"exclusive takes elastic SMs":    {smShare, Exclusive, ""},
		"mps takes a part of time":       {timeShare, MPS, ""},
		"mps fixes SMs":                  {smShare, MPS, "gshare.dev/isolation: mps fixes the SMs, but sm-limit (48%) is above sm (24%)"},
		"elastic takes elastic SMs":      {smShare, Elastic, ""},
		"elastic needs all time":         {timeShare, Elastic, "gshare.dev/isolation: elastic needs quota 100%, not 40%"},
		"swap takes a part of time":      {timeShare, Swap, ""},
		"swap fixes SMs":                 {smShare, Swap, "gshare.dev/isolation: swap fixes the SMs, but sm-limit (48%) is above sm (24%)"},
		"any is no class of a slice":     {smShare, AnyIsolation, `gshare.dev/isolation: "" is none of`},
		"unknown":                        {smShare, "lottery", `gshare.dev/isolation: "lottery" is none of`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.share.ValidateFor(tc.class)
			if tc.wantErr != "" {
				wantRefusal(t, err, tc.wantErr)
			} else if err != nil {
				t.Errorf("AllowedIn: %v", err)
			}
		})
	}
}

func TestAttachable(t *testing.T) {
	whole := Share{Whole, Whole, Whole, Whole, MiB}
	for name, tc := range map[string]struct {
		isolation  Isolation
		containers []Container
		wantErr    string // empty is attachable
	}{
		"one":                       {AnyIsolation, []Container{asking("a", 1, smShare)}, ""},
		"one in each container":     {MPS, []Container{asking("a", 1, timeShare), asking("b", 1, timeShare)}, ""},
		"whole ones":                {AnyIsolation, []Container{asking("a", 8, whole)}, ""},
		"parts, alone on each":      {Exclusive, []Container{asking("a", 2, smShare)}, ""},
		"parts of several":          {AnyIsolation, []Container{asking("a", 1, whole), asking("b", 2, smShare)}, `container "b": gshare.dev/isolation: 2 vGPUs can be had as whole devices only`},
		"parts by MPS":              {MPS, []Container{asking("a", 2, Share{500, 500, 1000, 1000, 1})}, `container "a": gshare.dev/isolation: `},
		"whole ones, but by MPS":    {MPS, []Container{asking("a", 2, whole)}, `container "a": gshare.dev/isolation: `},
		"whole ones, but by tokens": {Elastic, []Container{asking("a", 2, whole)}, `container "a": gshare.dev/isolation: `},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{plainTerms, tc.containers}
			r.Isolation = tc.isolation
			if err := r.ValidateDevices(); tc.wantErr != "" {
				wantRefusal(t, err, tc.wantErr)
			} else if err != nil {
				t.Errorf("Attachable: %v", err)
			}
		})
	}
}

func TestRequestValidate(t *testing.T) {
	mps := plainTerms
	mps.Isolation = MPS
	cases := map[string]struct {
		req     Request
		wantErr string // empty is valid
	}{
		"two containers":      {Request{mps, []Container{asking("a", 1, timeShare), asking("b", 1, timeShare)}}, ""},
		"elastic anywhere":    {Request{plainTerms, []Container{asking("a", 8, smShare)}}, ""},
		"no terms":            {Request{Containers: []Container{asking("a", 1, timeShare)}}, "gshare.dev/class: "},
		"no container":        {Request{Terms: plainTerms}, "gshare/sm: no container asks"},
		"isolation of one":    {Request{mps, []Container{asking("a", 1, timeShare), asking("b", 1, smShare)}}, `container "b": gshare.dev/isolation: mps fixes`},
		"no vGPU":             {Request{plainTerms, []Container{asking("a", 0, smShare)}}, `container "a": gshare/vgpu: 0 vGPUs is outside`},
		"bad share":           {Request{plainTerms, []Container{asking("a", 1, Share{})}}, `container "a": gshare/sm: `},
		"quota with two":      {Request{plainTerms, []Container{asking("a", 2, timeShare)}}, `container "a": gshare/quota: 40% with 2 vGPUs`},
		"own slices":          {Request{plainTerms, []Container{{Name: "a", VGPUs: 1, Share: smShare, Slice: "3g.40gb"}, {Name: "b", VGPUs: 1, Share: smShare, Slice: AnyMIG}}}, ""},
		"own slice":           {Request{plainTerms, []Container{{Name: "a", VGPUs: 1, Share: smShare, Slice: "3g"}}}, `container "a": gshare.dev/slice.a: "3g" is neither gpu, mig nor`},
		"too many in one pod": {Request{plainTerms, []Container{asking("a", 64, smShare), asking("b", 1, smShare)}}, "gshare/vgpu: 65 vGPUs in one pod is outside 1 to 64"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.req.Validate()
			if tc.wantErr != "" {
				wantRefusal(t, err, tc.wantErr)
			} else if err != nil {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

func TestTermsOf(t *testing.T) {
	r := Request{plainTerms, []Container{asking("a", 1, smShare), {Name: "b", VGPUs: 1, Share: smShare, Slice: "3g.40gb"}}}
	for c, want := range []string{WholeGPU, "3g.40gb"} {
		got := r.TermsOf(c)
		if got.Slice != want || got.Enforcement != Strict || r.Slice != WholeGPU {
			t.Errorf("container %d: %+v, want slice %s", c, got, want)
		}
	}
}
