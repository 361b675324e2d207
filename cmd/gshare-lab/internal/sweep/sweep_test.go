package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

func small() experiment {
	return experiment{from: 500, to: 2000, batches: []int{1, 2}, most: 7, heldOut: 4, executions: 100}
}

// exponential is a model whose curve is of the kind that is fitted.
func exponential(c profile.MilliCPU, batch, executions int) ([]time.Duration, error) {
	all := make([]time.Duration, executions)
	for i := range all {
		all[i] = time.Duration(float64(batch) * float64(time.Second) * (math.Exp(-float64(c)/500) + 0.1) * (1 + 0.001*float64(i)))
	}
	return all, nil
}

// step is one that no such curve follows: twice as slow on less than a vCPU.
func step(c profile.MilliCPU, batch, executions int) ([]time.Duration, error) {
	one := time.Duration(batch) * time.Second
	if c < 1000 {
		one *= 2
	}
	return slices.Repeat([]time.Duration{one}, executions), nil
}

// TestExperiment: the points that are held out are not those that are fitted, and are predicted if the curve is of the kind that is fitted, and else not.
func TestExperiment(t *testing.T) {
	for name, test := range map[string]struct {
		model measure
		most  profile.MAPE
		least profile.MAPE
	}{"exponential": {exponential, 1e-3, 0}, "step": {step, 1, 0.1}} {
		t.Run(name, func(t *testing.T) {
			e := small()
			r, err := e.run(test.model)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Fitted) != 14 || len(r.HeldOut) != 8 {
				t.Errorf("%d points fitted and %d held out, want 7 and 4 of each batch", len(r.Fitted), len(r.HeldOut))
			}
			for _, p := range r.HeldOut {
				if p.CPU <= e.from || p.CPU >= e.to || slices.ContainsFunc(r.Fitted, func(f point) bool { return f.CPU == p.CPU }) {
					t.Errorf("%d of batch %d is held out, and no point between those that are fitted", p.CPU, p.Batch)
				}
			}
			if mean, p99 := errorsOf(r.HeldOut); max(mean, p99) > test.most || min(mean, p99) < test.least {
				t.Errorf("errors %v and %v, want %v to %v", mean, p99, test.least, test.most)
			}
			judged := (&options{maxMean: 5, maxTails: 5}).judge([]result{r})
			if (judged == nil) != (test.least == 0) {
				t.Errorf("judged: %v", judged)
			}
			var table bytes.Buffer
			if err := writeTable(&table, []result{r}); err != nil || strings.Count(table.String(), "held out") != 8 || strings.Count(table.String(), "\n") != 26 {
				t.Errorf("%v\n%s", err, &table)
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	e := small()
	p, err := e.point(exponential, 1000, 1)
	all, _ := exponential(1000, 1, 100)
	if err != nil || p.P99 != all[98] || p.P95 != all[94] || p.Mean < all[49] || p.Mean > all[50] {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := e.run(func(profile.MilliCPU, int, int) ([]time.Duration, error) { return nil, errors.New("broken") }); err == nil || !strings.Contains(err.Error(), "2 vCPUs, batch 1: broken") {
		t.Errorf("error %v", err)
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct{ arguments, says string }{
		{"--from 5", "--from"}, {"--from 600 --to 500", "--to"}, {"--to 100000000", "--to"}, {"--points 3", "--points"}, {"--held-out 7", "--held-out"},
		{"--executions 9", "--executions"}, {"--repeats 0", "--repeats"}, {"--period 1", "--period"}, {"--batches 2", "--batches"}, {"--python /none", "python3-torch"},
	} {
		cmd := Command()
		cmd.SetArgs(strings.Fields(test.arguments))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want it to say %s", test.arguments, err, test.says)
		}
	}
}

// TestMain is also the program of a model that answers at once.
func TestMain(m *testing.M) {
	if os.Getenv("GSHARE_MODEL") == "" {
		os.Exit(m.Run())
	}
	fmt.Println("ready")
	for line := ""; ; {
		if _, err := fmt.Scanln(&line); err != nil {
			return
		}
		fmt.Println(line)
	}
}

// TestProgram: a program answers once for each execution that counts and each that warms it up, and its end is an error.
func TestProgram(t *testing.T) {
	t.Setenv("GSHARE_MODEL", "1")
	p, err := (&options{period: 100}).start(t.Context(), []string{os.Args[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if all, err := p.measure(t.Context(), 500, 1, 20); err != nil || len(all) != 20 || slices.Min(all) <= 0 {
		t.Errorf("%v, %v", all, err)
	}
	if err := p.ask.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.measure(t.Context(), 500, 1, 20); err == nil {
		t.Error("no error of a program that has ended")
	}
	if _, err := (&options{}).start(t.Context(), []string{"echo", "hello"}); err == nil || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a program that is not ready: %v", err)
	}
}
