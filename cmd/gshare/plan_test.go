package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

// gsharePlan runs gshare plan on the example, with other arguments after it.
func gsharePlan(arguments ...string) (string, error) {
	example := []string{
		"plan", "--applications", "testdata/plan/applications.yaml", "--profiles", "testdata/plan/profiles.yaml",
		"--prices", "testdata/plan/prices.yaml",
	}
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append(example, arguments...))
	err := cmd.Execute()
	return out.String(), err
}

func TestPlanExample(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "Frontier.svg")
	text, err := gsharePlan("--policy", "all", "-o", "json", "--plot", plot)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Currency string
		Plans    []struct {
			Policy        string
			NanoPerSecond float64
			Groups        []struct {
				Applications []struct{ Name string }
				Config       struct{ Mode string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Plans) != 3 || got.Currency != "USD" {
		t.Fatalf("%+v", got)
	}
	for _, p := range got.Plans {
		served := 0
		for _, g := range p.Groups {
			served += len(g.Applications)
		}
		if served != 7 || p.NanoPerSecond <= 0 || p.NanoPerSecond < got.Plans[0].NanoPerSecond {
			t.Errorf("%s serves %d applications at %v", p.Policy, served, p.NanoPerSecond)
		}
	}
	if drawn, err := os.ReadFile(plot); err != nil || !strings.Contains(string(drawn), "<svg") {
		t.Errorf("no picture: %v", err)
	}
}

func TestPlanTable(t *testing.T) {
	text, err := gsharePlan()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"USD/HOUR", "chat", "of a GPU", "share"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		arguments []string
		want      string
		code      int
	}{
		"output":        {[]string{"-o", "xml"}, `unknown format "xml"`, 2},
		"plot":          {[]string{"--plot", "x.pdf"}, "--plot: x.pdf: want a file that ends in .svg or .png", 2},
		"policy":        {[]string{"--policy", "best"}, `--policy: unknown policy "best"`, 2},
		"modes":         {[]string{"--modes", "tpu"}, `modes: "tpu"`, 2},
		"model":         {[]string{"--plot", filepath.Join(t.TempDir(), "x.svg"), "--model", "other"}, `--model: no application uses model "other"`, 2},
		"no file":       {[]string{"--prices", "nowhere.yaml"}, "--prices: open nowhere.yaml", 2},
		"no profiles":   {[]string{"--profiles", "nowhere.yaml"}, "--profiles: open nowhere.yaml", 2},
		"unknown field": {[]string{"--prices", file("prices: {nanoPerCpuSecond: 5}")}, `unknown field "prices.nanoPerCpuSecond"`, 2},
		"no YAML":       {[]string{"--applications", file("\t{")}, "--applications ", 2},
		"negative rate": {[]string{"--applications", file("applications: [{name: a, model: text, slo: 1, rate: -1}]")}, "applications[0].rate: -1 a second", 2},
		"empty":         {[]string{"--applications", file("{}")}, "applications: 0 of them", 2},
		"free":          {[]string{"--prices", file("prices: {currency: EUR}")}, "prices.nanoPerVCPUSecond: is zero", 2},
		"impossible":    {[]string{"--applications", file("applications: [{name: a, model: text, slo: 0.0001, rate: 1}]")}, "applications.a.slo: 0.0001 s is less than", 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gsharePlan(c.arguments...)
			if err == nil || !strings.Contains(err.Error(), c.want) || cli.ExitCode(err) != c.code {
				t.Errorf("%v with exit code %d; want %q and %d", err, cli.ExitCode(err), c.want, c.code)
			}
		})
	}
}
