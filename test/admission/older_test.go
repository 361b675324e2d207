package admission_test

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

var full = flag.Bool("full", false, "start API servers that emulate older versions as well")

// TestOlder: an API server that emulates Kubernetes 1.35 accepts the policy with the defaults in no API version. One that serves v1beta1 accepts
// the policy in v1beta1, and completes pods by it. The two cannot be tested on one server: the API server of 1.37 reads policies in v1, which 1.35
// does not have.
func TestOlder(t *testing.T) {
	if !*full {
		t.Skip("takes two API servers: -full")
	}
	v1 := read(t, defaults)
	beta := bytes.ReplaceAll(v1, []byte("admissionregistration.k8s.io/v1\n"), []byte("admissionregistration.k8s.io/v1beta1\n"))
	t.Run("1.35", func(t *testing.T) {
		c := connectWith(t, "--emulated-version=1.35")
		for name, file := range map[string][]byte{"v1": v1, "v1beta1": beta} {
			if err := c.create(t, file); err == nil || !strings.Contains(err.Error(), "no matches for kind") {
				t.Errorf("%s: %v", name, err)
			}
		}
		completed := c.prepare(t).good
		c.install(t)
		c.testIncomplete(t, completed)
	})
	t.Run("v1beta1", func(t *testing.T) {
		c := connectWith(t, "--runtime-config=admissionregistration.k8s.io/v1beta1=true")
		before := c.prepare(t)
		c.install(t)
		c.installDefaults(t, beta)
		c.testGood(t, before.good)
	})
}

// prepare returns the pods as the API server would store them without the policies.
func (c *cluster) prepare(t *testing.T) stored {
	t.Helper()
	c.namespace(t, "slo", map[string]string{"gshare.dev/slo": "allowed"})
	c.runtimeClass(t)
	return c.without(t)
}

// connectWith starts a separate API server with these flags.
func connectWith(t *testing.T, flags ...string) *cluster {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{APIServerArgs: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return connect(t, plane.Config(access.Admin))
}
