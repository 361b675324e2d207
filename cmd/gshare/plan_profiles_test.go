package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

const planPrices = "prices: {currency: USD, nanoPerSliceSecond: 500000, nanoPerSliceGBSecond: 1500}\n"

// planned runs gshare plan for one application of the model with these files of profiles.
func planned(t *testing.T, model string, profiles ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out strings.Builder
	cmd.SetOut(&out)
	args := []string{"plan", "-o", "json", "--applications", writeFile(t, "applications.yaml", "applications: [{name: app, model: "+model+", slo: 0.2, rate: 30}]\n"),
		"--prices", writeFile(t, "prices.yaml", planPrices)}
	for _, text := range profiles {
		args = append(args, "--profiles", writeFile(t, "profiles", text))
	}
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// measuredProfile is a complete GPUProfile, whose batches take 3 ms and 6 ms a row on 12 % of the SMs, times a factor.
func measuredProfile(name string, factor int) string {
	text := fmt.Sprintf(`---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: %s, namespace: ml}
spec: {functionRef: {name: f}}
status:
  conditions: [{type: Complete, status: "True", reason: Measured}]
  fingerprint: {model: H200}
  recommended: {sm: 12, quota: 100, memory: 1536Mi, maxBatch: 8, requestsPerSecond: 100}
  points:
`, name)
	for _, batch := range []int{1, 2, 4, 8} {
		text += fmt.Sprintf("  - {sm: 12, quota: 100, batch: %d, meanMicroseconds: %d}\n", batch, factor*(3000+6000*batch))
	}
	return text
}

// record is what gshare profile has measured of the same server, on one machine.
func record(changes ...func(*profiler.Record)) *profiler.Record {
	r := &profiler.Record{
		Version: profiler.RecordVersion, Model: "vision", Complete: true, Plan: profiler.Plan{SLO: 0.2, Strategy: growth, Step: 100, MaxBatch: 8, Memory: 4 << 30},
		Fingerprint: profiler.Fingerprint{Program: "p", Device: "H200, 132 SMs"},
	}
	for _, batch := range []int{1, 2, 4, 8} {
		mean := time.Duration(3+6*batch) * time.Millisecond
		r.Trials = append(r.Trials, profiler.Trial{Point: profile.Point{
			Model: "vision", Resource: profile.Resource{SM: 120, Quota: 1000, Device: "H200"}, Batch: batch, Mean: mean, Memory: 1396 << 20,
			Throughput: float64(batch) / mean.Seconds() / 2,
		}})
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func recordText(t *testing.T, r any) string {
	t.Helper()
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPlanProfiles: gshare plan takes the latencies of GPUProfiles and of gshare profile, and plans the same with those of the same server.
func TestPlanProfiles(t *testing.T) {
	const catalogue = "models: [{name: vision, share: {curves: [{sm: 500, exclusive: {slope: 0.001, intercept: 0.001}}], tail: {slope: 1, intercept: 0}, window: 0.1, memoryMiB: {slope: 0, intercept: 100}, maxBatch: 4}}]\n"
	ended := recordText(t, record(func(r *profiler.Record) { r.Complete = false }))
	printed := recordText(t, profileResult{record(), record().Points(), recommend(record(), strategyOf(&record().Plan, time.Second, "H200"))})
	for name, test := range map[string]struct {
		model    string
		profiles []string
		sm       int
		notes    []string
	}{
		"a GPUProfile":             {"vision", []string{measuredProfile("vision", 1)}, 120, []string{"vision: the latencies are those of GPUProfile ml/vision on H200, for batches of up to 8"}},
		"by its namespace":         {"ml/vision", []string{measuredProfile("vision", 1) + measuredProfile("text", 1)}, 120, []string{"ml/vision: the latencies are those of GPUProfile ml/vision on H200, for batches of up to 8"}},
		"beside one that is unfit": {"vision", []string{measuredProfile("vision", 1) + strings.Replace(measuredProfile("text", 1), "True", "False", 1)}, 120, []string{"GPUProfile ml/vision"}},
		"stale": {"vision", []string{strings.Replace(measuredProfile("vision", 1), "conditions: [", `conditions: [{type: Stale, status: "True", message: it is old}, `, 1)}, 120,
			[]string{"GPUProfile ml/vision", "vision: GPUProfile ml/vision is Stale: it is old"}},
		"a catalogue first": {"vision", []string{measuredProfile("vision", 1), catalogue}, 500, nil},
		"of one machine":    {"vision", []string{recordText(t, record())}, 120, []string{"profiles on H200, for batches of up to 8"}},
		"ended early":       {"vision", []string{ended}, 120, []string{"profiles on H200", "profiles is of a search that was ended early"}},
		"as it is printed":  {"vision", []string{printed}, 120, []string{"profiles on H200, for batches of up to 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := planned(t, test.model, test.profiles...)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Plans []struct {
					Groups []struct {
						Config struct {
							SM     int
							Memory int64
						}
					}
				}
				Notes []string
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			c := got.Plans[0].Groups[0].Config
			if c.SM != test.sm || test.sm == 120 && c.Memory != 1536<<20 {
				t.Errorf("planned with %+v of\n%s", c, text)
			}
			if len(got.Notes) != len(test.notes) {
				t.Fatalf("%q, want %q", got.Notes, test.notes)
			}
			for i, want := range test.notes {
				if !strings.Contains(got.Notes[i], want) {
					t.Errorf("%q, want %q", got.Notes, test.notes)
				}
			}
		})
	}
}

func TestPlanProfilesRefused(t *testing.T) {
	machine := func(change func(*profiler.Record)) string { return recordText(t, record(change)) }
	for name, test := range map[string]struct {
		profiles []string
		want     string
	}{
		"none":               {nil, "--profiles is required"},
		"of another model":   {[]string{measuredProfile("text", 1)}, `applications[0].model: there is no profile of "vision"`},
		"not complete":       {[]string{strings.Replace(measuredProfile("vision", 1), "True", "False", 1)}, "--profiles: GPUProfile ml/vision: it is not Complete"},
		"two of a name":      {[]string{measuredProfile("vision", 1) + strings.Replace(measuredProfile("vision", 2), "namespace: ml", "namespace: web", 1)}, `there are 2 profiles of model "vision", want 1: GPUProfile ml/vision, GPUProfile web/vision`},
		"two files":          {[]string{measuredProfile("vision", 1), recordText(t, record())}, `there are 2 profiles of model "vision"`},
		"another kind":       {[]string{strings.Replace(measuredProfile("vision", 1), "GPUProfile", "GPUFunction", 1)}, `not "GPUFunction"`},
		"a misspelled field": {[]string{"model: []\n"}, `unknown field "model"`},
		"no YAML":            {[]string{"\t{"}, "--profiles "},
		"another version":    {[]string{machine(func(r *profiler.Record) { r.Version = 9 })}, "version 9 is not supported"},
		"of a training":      {[]string{machine(func(r *profiler.Record) { r.Plan.Progress = 15 })}, "a program that answers no requests has no latencies"},
		"no trial":           {[]string{machine(func(r *profiler.Record) { r.Trials = []profiler.Trial{} })}, "it has no trial in which the server ran"},
		"no rate": {[]string{machine(func(r *profiler.Record) {
			clear(r.Trials[1:])
			r.Trials = r.Trials[:1]
			r.Trials[0].Point.Throughput = 0
		})}, "it recommends no share"},
		"another search":     {[]string{machine(func(r *profiler.Record) { r.Plan.Strategy = "luck" })}, `plan.strategy: "luck" is not growth, bisection or grid`},
		"a step of nothing":  {[]string{machine(func(r *profiler.Record) { r.Plan.Strategy, r.Plan.Step = bisection, 0 })}, "it recommends no share"},
		"a share of nothing": {[]string{machine(func(r *profiler.Record) { r.Trials[0].Point.Resource.SM = -1 })}, "trials[0]: "},
		"an unknown field":   {[]string{strings.Replace(recordText(t, record()), `"complete"`, `"completed"`, 1)}, `unknown field "completed"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := planned(t, "vision", test.profiles...)
			if err == nil || !strings.Contains(err.Error(), test.want) || cli.ExitCode(err) != 2 {
				t.Errorf("%v with exit code %d, want %q", err, cli.ExitCode(err), test.want)
			}
		})
	}
}

// TestWhatifOneMachine: what gshare profile has measured names no image, by which whatif could tell containers.
func TestWhatifOneMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vision.profile.json")
	if err := record().Save(file); err != nil {
		t.Fatal(err)
	}
	if _, err := runWhatif(t, "--profiles", file, "--kubeconfig", whatifServer(t)); err == nil || !strings.Contains(err.Error(), "names no image: want GPUProfiles") || cli.ExitCode(err) != 2 {
		t.Error(err)
	}
}
