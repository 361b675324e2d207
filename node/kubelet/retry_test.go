package kubelet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRetryGivesUp: whoever waits for a call learns that the time was too short, also where the limiter or the kubelet says so before the context has
// ended. Other errors are those of the kubelet.
func TestRetryGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		rate   rate.Limit
		answer codes.Code
		late   bool
	}{
		"the next call would be too late": {rate.Every(time.Hour), codes.Unavailable, true},
		"the kubelet is busy to the end":  {rate.Inf, codes.ResourceExhausted, true},
		"the kubelet sees the deadline":   {rate.Inf, codes.DeadlineExceeded, true},
		"there is no such pod":            {rate.Inf, codes.NotFound, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				calls := 0
				err := retryWhileBusy(ctx, rate.NewLimiter(c.rate, 1), func(context.Context) error {
					calls++
					return status.Error(c.answer, "no")
				})
				if err == nil || calls == 0 || errors.Is(err, context.DeadlineExceeded) != c.late {
					t.Errorf("after %d calls: %v", calls, err)
				}
			})
		})
	}
}
