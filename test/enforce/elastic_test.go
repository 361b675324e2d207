package enforce_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestElastic checks that a pod reaches its limit within two windows while it is alone, and has its request within one window
// after the pod with the rest of the quota resumes.
func TestElastic(t *testing.T) {
	t.Parallel()
	borrower := share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 200, QuotaLimit: 800, Memory: share.MiB}
	back, length := second, 2*second
	spans := run(t, enforce.Experiment{Tokens: table, Length: length, Pods: []enforce.Pod{
		{Share: borrower, Load: greedy()}, {Share: part(1000, 600), Load: greedy(at("from", back))},
	}})
	for name, period := range map[string]struct {
		pod   int
		quota share.PerMille
		from  int // in windows
		to    int
	}{
		"the limit, two windows after the start":     {0, 800, 2, 9},
		"the request, when the owner is back":        {0, 200, 11, 20},
		"the owner's request, one window after that": {1, 600, 11, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := spans[period.pod]
			for w := period.from; w < period.to; w++ {
				from := time.Duration(w) * window
				if got := s.Busy(from, from+window); got < float64(period.quota)/1000-0.06 {
					t.Errorf("busy for %.1f %% of window %d, want %d per-mille", 100*got, w, period.quota)
				}
			}
			if err := enforce.Delivered(s, period.quota, time.Duration(period.from)*window, time.Duration(period.to)*window); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestElasticControl is the negative control: a pod whose limit equals its request stays at it while it is alone.
func TestElasticControl(t *testing.T) {
	t.Parallel()
	spans := run(t, enforce.Experiment{Tokens: table, Length: second, Pods: []enforce.Pod{{Share: part(1000, 200), Load: greedy()}}})
	if enforce.Delivered(spans[0], 800, 2*window, second) == nil {
		t.Error("a pod with a limit of 20 % got 80 %")
	}
	if err := enforce.Accurate(spans[0], 200, 2*window, second); err != nil {
		t.Error(err)
	}
}
