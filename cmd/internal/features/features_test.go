package features

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// TestRefuse: each gate is off until it is turned on, by its name or as one of all Alpha gates.
func TestRefuse(t *testing.T) {
	for _, gate := range gates {
		for flag, on := range map[string]bool{
			"": false, string(gate.name) + "=false": false, string(gate.name) + "=true": true,
			"AllAlpha=true": true, "AllAlpha=true," + string(gate.name) + "=false": false,
		} {
			t.Run(string(gate.name)+"/"+flag, func(t *testing.T) {
				g := New("gshare-x")
				f := pflag.NewFlagSet("", pflag.ContinueOnError)
				g.AddFlag(f)
				if err := f.Parse([]string{"--feature-gates=" + flag}); err != nil {
					t.Fatal(err)
				}
				err := g.Refuse(gate.name, "spec.x")
				want := fmt.Sprintf("spec.x: the feature %s is Alpha and off: start gshare-x with --feature-gates=%[1]s=true", gate.name)
				if on && err != nil || !on && (err == nil || err.Error() != want) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// TestUnknown: what is no gate, or no value of one, is an error of the flag.
func TestUnknown(t *testing.T) {
	for flag, want := range map[string]string{"Park=true": "unrecognized feature gate: Park", "Parking": "missing bool value for Parking", "Parking=on": "Parking=on"} {
		t.Run(flag, func(t *testing.T) {
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			New("gshare-x").AddFlag(f)
			if err := f.Parse([]string{"--feature-gates=" + flag}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// TestAddTo: the gates of a program that has others work with its own flag.
func TestAddTo(t *testing.T) {
	others := featuregate.NewFeatureGate()
	if err := AddTo(others); err != nil {
		t.Fatal(err)
	}
	if err := others.Set("Swap=true"); err != nil {
		t.Fatal(err)
	}
	g := Of("gshare-x", others)
	if g.Refuse(Swap, "a") != nil || g.Refuse(Parking, "a") == nil {
		t.Error("the gates are not those of the program")
	}
}

// TestManual: docs/feature-gates.md says what the declarations say. make reference writes it.
func TestManual(t *testing.T) {
	if !slices.IsSortedFunc(gates, func(a, b gate) int { return strings.Compare(string(a.name), string(b.name)) }) {
		t.Error("the gates are not in alphabetical order")
	}
	const file = "../../../docs/feature-gates.md"
	want := page()
	if os.Getenv("GSHARE_WRITE_REFERENCE") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("docs/feature-gates.md differs from the declarations (make reference): %v", err)
	}
}

// TestChart: the Helm chart accepts the gates in featureGates, and no others. It does not accept AllAlpha, which would turn on Alpha features of
// Kubernetes in gshare-scheduler.
func TestChart(t *testing.T) {
	text, err := os.ReadFile("../../../manifests/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			FeatureGates struct {
				AdditionalProperties bool
				Properties           map[string]any
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range gates {
		names = append(names, string(g.name))
	}
	if got := slices.Sorted(maps.Keys(schema.Properties.FeatureGates.Properties)); !slices.Equal(got, names) || schema.Properties.FeatureGates.AdditionalProperties {
		t.Errorf("the schema has %v, want %v and no others", got, names)
	}
}

// page returns docs/feature-gates.md.
func page() string {
	var rows strings.Builder
	for _, g := range gates {
		fmt.Fprintf(&rows, "| `%s` | %s | %t | %s | `%s` | %s See [%s](%[7]s). |\n",
			g.name, g.stage(), g.spec.Default, g.since, strings.Join(g.programs, "`, `"), g.text, g.page)
	}
	return fmt.Sprintf(pageText, rows.String())
}

const pageText = `# Feature gates

Written from the source by ` + "`make reference`" + `. A feature gate turns a feature on or off, as in Kubernetes.

| Stage | Default | What it means |
|---|---|---|
| Alpha | off | The feature may have errors that affect others, and may change or be removed without notice. |
| Beta | on | The feature is tested well, and will not be removed. Details may change; the [changelog](../CHANGELOG.md) says how. |

What has no gate is Beta.

| Gate | Stage | Default | Since | Refused by | Feature |
|---|---|---|---|---|---|
%s
A program that is asked for a feature that is off refuses it, and names the flag:

* ` + "`gshare-node`" + ` does not start with a key of its configuration that needs the feature. Running containers continue.
* ` + "`gshare-controller`" + ` does not run a GPUFunction that needs the feature: its condition Ready is False, with reason Invalid. An InferencePlan with
  ` + "`mode: Apply`" + ` is planned and not applied: its condition Applied is False, with reason NotApplied.
* ` + "`gshare-descheduler`" + ` does not start with a policy that enables its plugin.

## Turn a feature on

gshare-scheduler, gshare-node, gshare-controller, gshare-gateway and gshare-descheduler know all gates, and have the flag ` + "`--feature-gates`" + `:

` + "```text" + `
--feature-gates=Parking=true,Swap=true
` + "```" + `

` + "`AllAlpha=true`" + ` turns on all Alpha features at once. gshare-scheduler and gshare-descheduler have gates of Kubernetes and of the descheduler, too, so
there it also turns on theirs. A program that does not know a gate does not start: the exit code is 2, or 1 for gshare-scheduler and
gshare-descheduler.

With Helm, the value ` + "`featureGates`" + ` sets the flag of all programs of the chart, and accepts no other names:

` + "```text" + `
--set featureGates.Parking=true
` + "```" + `

With kustomize, add the flag to a program's arguments with a patch of your overlay:

` + "```text" + `
patches:
- target: {kind: Deployment, name: gshare-controller}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --feature-gates=Parking=true}
` + "```" + `

## Turn a feature off

First end what uses it. GPUFunctions that need a feature that is off are not scaled any more, and their pods stay until the functions are deleted.
`
