package cut

import (
	"bytes"
	"strings"
	"testing"
)

// TestCut cuts the build file of an example of the Python package, in which "choose" reads both other nodes.
func TestCut(t *testing.T) {
	const build = "--build=../../../../serving/rules/pipeline/testdata/words.json"
	for name, c := range map[string]struct {
		arguments []string
		want      string // without spaces, or the error
	}{
		"whole": {
			[]string{build, "--slice=a=cpu:8Gi", "--slice=b=cpu:8Gi"},
			`{"version":1,"function":"words","stages":[[{"nodes":["split","weigh","choose"],"slice":"a"}]]}`,
		},
		"not measured on it": {[]string{build, "--slice=a=1g.10gb"}, "fits none of the kinds"},
		"no slice":           {[]string{build}, "kinds: 0 of them"},
		"too late":           {[]string{build, "--slice=a=cpu:8Gi", "--slo=1ns"}, "meets the SLO"},
		"other batch":        {[]string{build, "--slice=a=cpu:8Gi", "--batch=3"}, "batch: 3 is none of those"},
		"no profile":         {[]string{build, "--slice=a=cpu"}, "is no MIG profile"},
		"no memory":          {[]string{build, "--slice=a=cpu:8"}, "has no memory"},
		"no name":            {[]string{build, "--slice=1g.10gb"}, "is not ID=PROFILE"},
		"no file":            {[]string{"--build=missing.json"}, "no such file"},
		"not a build file":   {[]string{"--build=cut.go"}, "cut.go: build file"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := Command()
			var out, errs bytes.Buffer
			cmd.SetArgs(c.arguments)
			cmd.SetOut(&out)
			cmd.SetErr(&errs)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			got := ""
			if err := cmd.Execute(); err != nil {
				got = err.Error()
			} else {
				got = strings.Join(strings.Fields(out.String()), "")
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
