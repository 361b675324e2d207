package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/grant"
)

// TestLastRefusal: whoever runs out of time while a share is refused is told the refusal, also by a try that has no time left before the context has
// ended.
func TestLastRefusal(t *testing.T) {
	r := newFixture(t)
	late := fmt.Errorf("%w: too late for another try", context.DeadlineExceeded)
	for name, refused := range map[string]bool{"refused before": true, "never tried": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(r.ctx)
			defer cancel()
			tries := 0
			err := r.granter.grantSoon(ctx, time.Minute, []string{"t"}, func(context.Context) (grant.Claim, error) {
				tries++
				if refused && tries == 1 {
					return grant.Claim{}, grant.Ambiguous("of two pods")
				}
				if tries > 2 {
					cancel()
				}
				return grant.Claim{}, late
			})
			var refusal *grant.Refusal
			if errors.As(err, &refusal) != refused || err == nil {
				t.Errorf("after %d tries: %v", tries, err)
			}
		})
	}
}
