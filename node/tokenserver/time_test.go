package tokenserver_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestConfiguredPolicy checks that a server issues the tokens of the policy of the node's configuration.
func TestConfiguredPolicy(t *testing.T) {
	// A slot table gives a share of half the window all of its time at once, a queue one turn at a time.
	if table, fast := firstToken(t, token.Table, 0), firstToken(t, token.Fast, 0); table != 50*time.Millisecond || fast != 5*time.Millisecond {
		t.Errorf("the first token of a table is of %v, of a queue %v", table, fast)
	}
	for _, policy := range token.Policies() {
		t.Run(policy.String(), func(t *testing.T) {
			config, err := node.Decode([]byte("apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\ntokenPolicy: " + policy.String() + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := config.NewTokens()
			if err != nil {
				t.Fatal(err)
			}
			clock := &handClock{now: time.Hour}
			r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Clock = clock })
			r.slice = r.NewSlice(tokens)
			r.add(t, "a", half)
			c := r.dial(t, "a")
			if err := c.Send(&tokenwire.Need{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the process runs", func() bool { return state(c) == tokenwire.Run })
			want := firstToken(t, policy, clock.Now())
			got := time.Duration(c.VGPUs[0].Server.Deadline.Load()) - clock.Now()
			if got.Round(time.Millisecond) != want {
				t.Errorf("the token is of %v, want %v", got, want)
			}
		})
	}
}

// firstToken returns how long the first token of the share half is under a policy.
func firstToken(t *testing.T, policy token.Policy, now time.Duration) time.Duration {
	t.Helper()
	s, err := token.New(token.Config{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(now, token.Member{ID: 1, SM: half.SMRequest, QuotaRequest: half.QuotaRequest, QuotaLimit: half.QuotaLimit}); err != nil {
		t.Fatal(err)
	}
	if err := s.RequestToken(now, 1); err != nil {
		t.Fatal(err)
	}
	changes, _ := s.Advance(now)
	if len(changes) != 1 {
		t.Fatalf("%v instead of a token", changes)
	}
	return (changes[0].Token.Deadline - now).Round(time.Millisecond)
}
