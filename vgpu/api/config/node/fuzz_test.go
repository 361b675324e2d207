package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

// FuzzDecode checks that a decoded file is valid, and is the same after encoding and decoding it again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(head + "window: 50ms\nturn: 5ms\nrunAhead: 1ms\ntenancy: mixed\ndevices: [GPU-0]\n"))
	f.Add([]byte(head + "reservePerMille: 0\ngammaPercent: 1000\nmaxShares: 60\n"))
	f.Add([]byte(head + "devices: ['0']\nkubernetes: {unmanagedProcesses: end, watchPeriod: 1s, hookGrace: 5s}\n"))
	f.Add([]byte("apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\nwindow: -9223372036854775808ns\n"))
	f.Add([]byte(head + "devices: []\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Decode(text)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("taken, but %v", err)
		}
		again, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		same, err := Decode(again)
		if diff := cmp.Diff(c, same, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", again, err, diff)
		}
	})
}
