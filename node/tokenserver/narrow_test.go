package tokenserver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestNarrow: a running container has less time than its share says, also on its page and in its policy file, its neighbour may have what it gives up, and
// more than its share it never has.
func TestNarrow(t *testing.T) {
	r := newFixture(t, tempDir(t))
	half := allTime
	half.QuotaRequest, half.QuotaLimit = 600, 800
	served := r.add(t, "a", half)
	page := r.dial(t, "a").VGPUs[0].Server
	expect := func(quota, limit share.PerMille) {
		t.Helper()
		status := served.Status().VGPUs[0]
		if got := share.PerMille(page.Guaranteed.Load()); got != quota || status.QuotaRequest != quota || status.QuotaLimit != limit ||
			!strings.Contains(r.policy(t, "a"), fmt.Sprintf(" quota %d ", quota)) {
			t.Errorf("guaranteed %v, status %+v, policy file %q, want %v", got, status.Share, r.policy(t, "a"), quota)
		}
	}
	expect(600, 800)
	for _, quota := range []share.PerMille{200, 500, 500, 600, 100} {
		if err := served.Narrow(quota); err != nil {
			t.Fatal(err)
		}
		limit := quota
		if quota == 600 {
			limit = 800
		}
		expect(quota, limit)
	}
	if later := r.dial(t, "a"); later.VGPUs[0].Server.Guaranteed.Load() != 100 {
		t.Error("a process that begins later is guaranteed more")
	}
	for _, quota := range []share.PerMille{0, -1, 601, 1000} {
		if err, field := served.Narrow(quota), new(share.FieldError); !errors.As(err, &field) {
			t.Errorf("%v: error %v", quota, err)
		}
	}
	if err := served.Reshape(true); err != nil {
		t.Fatal(err)
	}
	if err := served.Narrow(300); err != nil || page.Guaranteed.Load() != 0 {
		t.Errorf("in idle time only it is guaranteed %d (%v)", page.Guaranteed.Load(), err)
	}
	if err := served.Reshape(false); err != nil {
		t.Fatal(err)
	}
	expect(300, 300)
	neighbour := r.add(t, "b", share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 700, QuotaLimit: 700, Memory: gib})
	if err := served.Narrow(600); !errors.Is(err, token.ErrDoesNotFit) {
		t.Errorf("beside a neighbour with the rest of the time: %v", err)
	}
	expect(300, 300)
	if err := neighbour.Close(); err != nil {
		t.Fatal(err)
	}
	if err := served.Narrow(600); err != nil {
		t.Error(err)
	}
	expect(600, 800)
}

func TestNarrowElastic(t *testing.T) {
	r, _ := newElasticFixture(t)
	if err := r.add(t, "a", quarter, elastic).Narrow(100); !errors.Is(err, tokenserver.ErrElastic) {
		t.Errorf("error %v", err)
	}
}
