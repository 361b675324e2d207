package expressions_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRanges: the policy gshare-ranges warns of each field of a LimitRange by which pods without a share are refused, and of no other.
func TestRanges(t *testing.T) {
	p := readPolicy(t, "ranges.yaml", "gshare-ranges")
	list := func(name v1.ResourceName) v1.ResourceList { return v1.ResourceList{name: resource.MustParse("50")} }
	container := v1.LimitTypeContainer
	for name, test := range map[string]struct {
		limits []v1.LimitRangeItem
		want   string // the beginning of the warning; empty: none
	}{
		"CPU":           {[]v1.LimitRangeItem{{Default: list("cpu"), DefaultRequest: list("cpu"), Max: list("memory"), Min: list("cpu")}}, ""},
		"of another":    {[]v1.LimitRangeItem{{Max: list("example.com/gshare")}}, ""},
		"default":       {[]v1.LimitRangeItem{{Type: container, Default: list("gshare/mem"), DefaultRequest: list("gshare/mem")}}, ""},
		"max":           {[]v1.LimitRangeItem{{Type: container, Max: list("gshare/sm")}}, ""},
		"min":           {[]v1.LimitRangeItem{{Type: container, Min: list("gshare/quota")}}, "min: "},
		"ratio":         {[]v1.LimitRangeItem{{Type: container, MaxLimitRequestRatio: list("gshare/quota")}}, "maxLimitRequestRatio: "},
		"of pods":       {[]v1.LimitRangeItem{{Type: v1.LimitTypePod, Max: list("gshare/sm"), Min: list("gshare/sm")}}, "max, min: "},
		"second of two": {[]v1.LimitRangeItem{{Max: list("cpu")}, {Min: list("gshare/mem")}}, "min: "},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.judge(t, &v1.LimitRange{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "LimitRange"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "l"},
				Spec: v1.LimitRangeSpec{Limits: test.limits},
			}, nil)
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want)) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
