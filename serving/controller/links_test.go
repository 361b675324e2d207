package controller

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestGatewayWithAnotherAddress checks that nothing is lost that a gateway reports over its new connection, however late the
// old one ends.
func TestGatewayWithAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &links{loads: newLoads(), log: slog.New(slog.DiscardHandler)}
		l.watch = func(ctx context.Context, name, address string) error {
			one(l.loads, name, "1", reported{load: gateway.Load{Arrived: 5000, Waiting: 1}}, false)
			<-ctx.Done()
			if address == "old" {
				time.Sleep(time.Second)
			}
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		open := map[endpoint]*link{}
		l.adjust(ctx, open, []endpoint{{"a", "old"}})
		synctest.Wait()
		l.adjust(ctx, open, []endpoint{{"a", "new"}})
		time.Sleep(2 * time.Second)
		if got := l.loads.Load(resnet); got.Waiting != 1 {
			t.Errorf("%+v, want the request that waits", got)
		}
		cancel()
	})
}
