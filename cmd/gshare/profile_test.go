package main

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestProfileBadInput checks that mistakes end gshare profile before it starts a program, with the place of the mistake.
func TestProfileBadInput(t *testing.T) {
	m := newMachine(t)
	good := functionFile(t, `[sleep, "1000"]`)
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing":            {nil, 2, "accepts 1 file, or a program after --"},
		"missing file":       {[]string{"/nowhere.yaml"}, 2, "/nowhere.yaml"},
		"no objective":       {[]string{"--", "sleep", "1000"}, 2, "--slo is required"},
		"strategy":           {[]string{good, "--strategy", "guess"}, 2, "want growth, bisection or grid"},
		"two strategies":     {[]string{good, "--grid", "--strategy", "bisection"}, 2, "exclude each other"},
		"steady":             {[]string{"--strategy", "bisection", "--steady", "10ms", "--", "sleep", "1000"}, 2, "want 1s to 1h"},
		"step of bisection":  {[]string{"--strategy", "bisection", "--step", "15", "--hook", m.hook, "--socket", m.socket, "--", "sleep", "1000"}, 2, "--step 15: want a percentage that divides 100"},
		"step":               {[]string{good, "--step", "0"}, 2, "--step 0: want 1 to 100"},
		"step above all":     {[]string{good, "--step", "101"}, 2, "--step 101: want 1 to 100"},
		"requests, no slo":   {[]string{"--strategy", "bisection", "--path", "/predict", "--", "sleep", "1000"}, 2, "--path is of a program that answers requests, and needs --slo"},
		"steady requests":    {[]string{"--slo", "1s", "--steady", "5s", "--", "sleep", "1000"}, 2, "--steady is of programs without --slo"},
		"file and objective": {[]string{good, "--slo", "1s"}, 2, "--slo describes a program after --"},
		"file and program":   {[]string{good, "--", "sleep"}, 2, "one program after --, and no file"},
		"plot":               {[]string{good, "--plot", "x.gif"}, 2, "--plot: x.gif"},
		"plot, no folder":    {[]string{good, "--plot", "/nowhere/x.svg"}, 2, "/nowhere"},
		"negative trials":    {[]string{good, "--max-trials", "-1"}, 2, "--max-trials -1"},
		"no agent":           {[]string{good, "--hook", m.hook, "--socket", "/nowhere/control.sock"}, 1, "is gshare-node --standalone running?"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := m.command(t, append([]string{"profile"}, test.args...)...)
			if code := codeOf(t, cmd.Run()); code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("code %d, want %d with %q: %s", code, test.code, test.want, out)
			}
		})
	}
}

// TestWriteTraining: what is printed of a training can be given to a shell, and its chart has kernels.
func TestWriteTraining(t *testing.T) {
	s := search.Bisection{Step: 1000, Batch: 1, Device: "GPU"}
	r := &profiler.Record{Model: "train", Plan: profiler.Plan{Progress: 15, Memory: 1 << 30}, Trials: []profiler.Trial{
		{Point: profile.Point{Model: "train", Batch: 1, Mean: 1, Throughput: 100, Memory: 1 << 20, Resource: profile.Resource{SM: 1000, Quota: 1000, Device: "GPU"}}, Confirmed: true},
	}}
	f := &api.GPUFunction{}
	f.Spec.Template.Spec.Containers = []v1.Container{{Command: []string{"python", "-c", "import train; train.main('a b')"}}}
	var out strings.Builder
	if err := writeTraining(&out, f, &profileResult{r, r.Points(), recommend(r, s)}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "warning") {
		t.Errorf("a steady rate: %s", &out)
	}
	r.Trials[0].Confidence = 0.5
	if err := writeTraining(&out, f, &profileResult{r, r.Points(), recommend(r, s)}); err != nil || !strings.Contains(out.String(), "warning: some rates differ") {
		t.Errorf("%v: %s", err, &out)
	}
	if want := ` -- python -c "import train; train.main('a b')"` + "\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %s: %s", want, &out)
	}
	if c := profileChart(r); c.Title != "Kernels of train" || c.Y != "kernels per second" {
		t.Errorf("%s, %s", c.Title, c.Y)
	}
}

// TestRecommend: the rate is rounded down, the memory up, and within what the server may use.
func TestRecommend(t *testing.T) {
	r := &profiler.Record{Plan: profiler.Plan{Memory: 200 * share.MiB}, Trials: []profiler.Trial{
		{Point: profile.Point{Batch: 4, Throughput: 34.99, Memory: 100 * share.MiB, Resource: profile.Resource{SM: 200, Quota: 1000}}},
		{Point: profile.Point{Batch: 8, Memory: 101 * share.MiB, Resource: profile.Resource{SM: 100, Quota: 1000}}},
	}}
	if got, want := recommend(r, nil), (recommendation{20, 0, 100, "128Mi", 4, 34.9}); got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.Trials[1].Point.Memory = 190 * share.MiB
	if got := recommend(r, nil); got.Memory != "200Mi" {
		t.Errorf("%s of 200Mi", got.Memory)
	}
	r.Trials[0].Point.Throughput = 0
	if got := recommend(r, nil); got != nil {
		t.Errorf("%+v although no share meets the objective", got)
	}
}
