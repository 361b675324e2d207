package identity

import (
	"testing"
	"time"
)

// TestRenew: a new authority is trusted for a day before it signs; then the old one has no key any more, and is trusted until it ends.
func TestRenew(t *testing.T) {
	const day = 24 * time.Hour
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, err := Authorities{}.Renew(begin)
	if err != nil {
		t.Fatal(err)
	}
	both, err := first.Renew(begin.Add(250 * day))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		from          Authorities
		days          int // since the begin
		trusted, keys int
		signer        int // its index
	}{
		"first":                     {first, 0, 1, 1, 0},
		"two thirds of its life":    {first, 240, 1, 1, 0},
		"a third is left":           {first, 245, 2, 2, 0},
		"both":                      {both, 250, 2, 2, 0},
		"the second signs":          {both, 251, 2, 1, 1},
		"the first has ended":       {both, 366, 1, 1, 0},
		"the controller was away":   {first, 400, 1, 1, 0},
		"both are old":              {both, 600, 2, 2, 0},
		"a clock that was put back": {both, 10, 2, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now := begin.Add(time.Duration(test.days) * day)
			got, err := test.from.Renew(now)
			if err != nil {
				t.Fatal(err)
			}
			keys := 0
			for _, one := range got {
				if one.key != nil {
					keys++
				}
			}
			if len(got) != test.trusted || keys != test.keys || got.signer(now) != test.signer {
				t.Errorf("%d are trusted, %d have keys, number %d signs; want %d, %d, %d", len(got), keys, got.signer(now), test.trusted, test.keys, test.signer)
			}
			text, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			stored, err := DecodeAuthorities(text)
			if err != nil {
				t.Fatal(err)
			}
			c, err := stored.Issue("gateway", now)
			if err != nil || !got.IsCurrent(c, "gateway", now) || got.IsCurrent(c, "other", now) {
				t.Errorf("a certificate of what was stored is not one of what was there: %v", err)
			}
		})
	}
}
