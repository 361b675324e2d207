package tenancy

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// percent returns the SM-time of a percentage of a GPU.
func percent(n int64) share.Area { return share.Area(n) * share.WholeArea / 100 }

func TestAmountOf(t *testing.T) {
	r := share.Request{Containers: []share.Container{
		{VGPUs: 2, Share: share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 400, QuotaLimit: 800, Memory: 1525 * share.MiB}},
		{VGPUs: 1, Share: share.Share{SMRequest: 500, QuotaRequest: 1000, Memory: 1}},
	}}
	if got, want := AmountOf(r), (Amount{Replicas: 1, Area: 2*240*400 + 500*1000, Memory: 3051}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.Weights = []share.Weights{{Memory: 100 * share.MiB}, {Memory: 1}}
	if got, want := AmountOf(r), (Amount{Replicas: 1, Area: 2*240*400 + 500*1000, Memory: 3051 + 3*100 + 2}); got != want {
		t.Errorf("with weights: %+v, want %+v", got, want)
	}
	r.Weights = nil
	r.Isolation = share.Exclusive
	if got, want := AmountOf(r), (Amount{Replicas: 1, Area: percent(300), Memory: 3051}); got != want {
		t.Errorf("exclusive: %+v, want %+v", got, want)
	}
}

func TestCheck(t *testing.T) {
	all := Limit{Policy: "gold", Replicas: new(3), Area: new(percent(250)), Memory: new(MiB(4096))}
	held := Amount{Replicas: 2, Area: percent(240), Memory: 3000}
	for name, test := range map[string]struct {
		limits []Limit
		held   Amount
		more   Amount
		want   []string
	}{
		"no policy":    {nil, held, Amount{1000, percent(100000), 1 << 40}, nil},
		"up to limits": {[]Limit{all}, held, Amount{1, percent(10), 1096}, nil},
		"SM-time": {[]Limit{all}, held, Amount{1, percent(24), 1096},
			[]string{"SharePolicy gold allows 250% of SM-time, of which 240% are held, and 24% more would be 14% too much"}},
		"parts of a percent": {[]Limit{all}, held, Amount{1, percent(10) + 9600, 1},
			[]string{"SharePolicy gold allows 250% of SM-time, of which 240% are held, and 10.96% more would be 0.96% too much"}},
		"memory": {[]Limit{all}, held, Amount{1, 0, 1097},
			[]string{"SharePolicy gold allows 4096Mi of device memory, of which 3000Mi are held, and 1097Mi more would be 1Mi too much"}},
		"replicas": {[]Limit{all}, Amount{Replicas: 3}, Amount{Replicas: 1},
			[]string{"SharePolicy gold allows 3 replicas, of which 3 are held, and 1 more would be 1 too much"}},
		"each policy holds": {[]Limit{{Policy: "a", Replicas: new(9)}, {Policy: "b", Replicas: new(2)}, {Policy: "c", Replicas: new(0)}}, held, Amount{Replicas: 1},
			[]string{"SharePolicy b allows 2 replicas, of which 2 are held, and 1 more would be 1 too much",
				"SharePolicy c allows 0 replicas, of which 2 are held, and 1 more would be 3 too much"}},
		"a policy without limits":        {[]Limit{{Policy: "a"}}, held, Amount{1, percent(9000), 1 << 40}, nil},
		"what is exceeded already":       {[]Limit{{Policy: "a", Memory: new(MiB(1))}}, held, Amount{Replicas: 1, Area: percent(1)}, nil},
		"what is at the limit, for none": {[]Limit{{Policy: "a", Replicas: new(2)}}, held, Amount{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Check(test.limits, test.held, test.more) {
				got = append(got, e.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q\nwant %q", got, test.want)
			}
		})
	}
}

func TestExceeded(t *testing.T) {
	limits := []Limit{{Policy: "gold", Replicas: new(3), Memory: new(MiB(4096))}}
	if got := Exceeded(limits, Amount{Replicas: 3, Area: percent(900), Memory: 4096}); len(got) > 0 {
		t.Errorf("%v at the limits", got)
	}
	got := Exceeded(limits, Amount{Replicas: 4, Memory: 4096})
	if want := "SharePolicy gold allows 3 replicas, and 4 are held: 1 too much"; len(got) != 1 || got[0].String() != want {
		t.Errorf("%v, want %s", got, want)
	}
}
