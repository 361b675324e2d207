package tokenserver_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestConfiguredPolicy checks that a slice issues tokens by the policy of the node's configuration: a slot table gives a share of half
// the window all of its time at once, FaST-GShare's queue one turn at a time.
func TestConfiguredPolicy(t *testing.T) {
	first := map[string]time.Duration{"table": 50 * time.Millisecond, "fast": 5 * time.Millisecond}
	for _, policy := range token.Policies() {
		t.Run(policy.String(), func(t *testing.T) {
			want, ok := first[policy.String()]
			if !ok {
				t.Fatal("this test does not say how long the policy's first token is")
			}
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
			got := time.Duration(c.VGPUs[0].Server.Deadline.Load()) - clock.Now()
			if got.Round(time.Millisecond) != want {
				t.Errorf("the token is of %v, want %v", got, want)
			}
		})
	}
}
