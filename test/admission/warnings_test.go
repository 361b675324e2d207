package admission_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// warnings collects the warnings of an API server.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// testWarnings: pods with annotations that gshare does not read are accepted with a warning.
func (c *cluster) testWarnings(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"mistyped", pod(says("isolaton", "mps")), "gshare.dev/isolaton (do you mean gshare.dev/isolation?): gshare does not read"},
		{"no share", plain(says("mem", "1Gi")), "gshare.dev/mem: no effect"},
		{"known", pod(says("isolation", "mps")), ""}, // at last, when the policy is in force
	} {
		t.Run(test.name, func(t *testing.T) {
			config, got := rest.CopyConfig(c.config), &warnings{}
			config.WarningHandler = got
			warned := connect(t, config)
			is := func(text string) bool {
				return strings.Contains(text, "gshare-names") && strings.Contains(text, test.want)
			}
			warned.eventually(t, test.name, func() (bool, error) {
				*got = nil
				_, err := warned.try("default", test.pod)
				return err == nil && slices.ContainsFunc(*got, is) == (test.want != ""), err
			})
		})
	}
}
