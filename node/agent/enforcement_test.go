package agent

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
)

// TestInBurst: enforcement statuses wait while shares are granted one after another, but no longer than a maximum.
func TestInBurst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ages map[types.UID]time.Duration
		told map[types.UID]string
		want bool
	}{
		"nothing granted":        {nil, nil, false},
		"granted a moment ago":   {map[types.UID]time.Duration{"a": enforcementQuiet / 2}, nil, true},
		"quiet since":            {map[types.UID]time.Duration{"a": enforcementQuiet}, nil, false},
		"one more has come":      {map[types.UID]time.Duration{"a": 5 * time.Second, "b": 0}, nil, true},
		"one is late":            {map[types.UID]time.Duration{"a": enforcementLate + 1, "b": 0}, nil, false},
		"an old one has its own": {map[types.UID]time.Duration{"a": time.Hour, "b": 0}, map[types.UID]string{"a": "report"}, true},
		"the clock was set back": {map[types.UID]time.Duration{"a": -time.Hour}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &grantStore{book: grant.NewBook("")}
			for uid, age := range test.ages {
				g.book.Restore(grant.Grant{Owner: grant.Owner{UID: uid, Container: "main"}, Since: now.Add(-age)})
			}
			if got := (&publisher{grants: g}).inBurst(test.told, now); got != test.want {
				t.Errorf("in a burst: %v, want %v", got, test.want)
			}
		})
	}
}
