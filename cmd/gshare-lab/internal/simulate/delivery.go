package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/delivery"
	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// deliverySimulation holds the flags and results of gshare-lab simulate delivery, which measures whether pods on full GPUs get their
// quotas.
type deliverySimulation struct {
	familyName, admission string
	gpus                  int
	setting               delivery.Setting
	worst                 map[string][]float64 // by policy: the worst share on each GPU, over all runs
}

// deliveryLong is the help, in which NODE stands for the token policies of a node.
const deliveryLong = `Fill GPUs with pods by an admission rule, let every pod compute all the time, and issue tokens by a policy. Pods cannot exceed their
quota. A pod stops when its token ends, and loses the switch loss when it starts.

--admission is slot, or mra for FaST-GShare's rectangles, which are not packed again to fit a pod. With slot, every GPU keeps switch loss x
turns / window free.
--tokens is the same as --policy: a token policy of a node (NODE; see docs/operate.md), hol (FaST-GShare's paper as printed: stops at the
first pod that does not fit) or skip (the paper's code: every pod that fits runs).

Figures of each run:
  gpus                     GPUs with pods
  pods                     pods on them
  gpus_all_served_percent  GPUs on which every pod got at least 99 % of its quota in each second, without the first two windows
  worst_share              part of its quota that the worst pod got in its worst second
  mean_worst_share         the same for the worst pod of each GPU, on average
  longest_gap_ms           longest time without a token`

func simulateDelivery() *simulation {
	d := &deliverySimulation{worst: map[string][]float64{}}
	return &simulation{
		name: "delivery", short: "Issue tokens on full GPUs, and measure the time that pods get", long: strings.ReplaceAll(deliveryLong, "NODE", names(token.Policies())),
		example:  "  gshare-lab simulate delivery --family uniform --admission slot --tokens table\n  gshare-lab simulate delivery --family papermix --admission mra --tokens hol --window 1s --switch-loss 0 -o json",
		policies: tokenNames(), flags: d.flags, prepare: d.prepare, run: d.run, chart: d.chart,
	}
}

// names returns the names of token policies, separated by commas.
func names(policies []token.Policy) string {
	var list []string
	for _, p := range policies {
		list = append(list, p.String())
	}
	return strings.Join(list, ", ")
}

// tokenNames returns the names of the token policies, in the order of delivery.Policies.
func tokenNames() []string { return strings.Split(names(delivery.Policies()), ", ") }

func (d *deliverySimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&d.familyName, "family", "papermix", strings.Join(shapesFamilies(), ", "))
	f.StringVar(&d.admission, "admission", "slot", strings.Join(delivery.AdmissionRules(), " or "))
	f.IntVar(&d.gpus, "gpus", 300, "number of GPUs to fill")
	f.DurationVar(&d.setting.Window, "window", 100*time.Millisecond, "window in which quotas are accounted; divides a second")
	f.DurationVar(&d.setting.Turn, "turn", 5*time.Millisecond, "length of turns, and maximum token of policies without turns")
	f.DurationVar(&d.setting.SwitchLoss, "switch-loss", time.Millisecond, "time that a pod loses when it starts after a pause")
	f.IntVar(&d.setting.Seconds, "seconds", 5, "time to simulate")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "tokens" {
			name = "policy"
		}
		return pflag.NormalizedName(name)
	})
}

// Upper bounds of flags, to catch typing errors.
const (
	maxDeliveryGPUs = 100_000
	maxSeconds      = 3600
)

func (d *deliverySimulation) prepare() error {
	_, known := shapes.Families()[d.familyName]
	switch {
	case !known:
		return fmt.Errorf("--family: unknown value %q: must be one of %s", d.familyName, strings.Join(shapesFamilies(), ", "))
	case !slices.Contains(delivery.AdmissionRules(), d.admission):
		return fmt.Errorf("--admission: unknown value %q: must be one of %s", d.admission, strings.Join(delivery.AdmissionRules(), ", "))
	case d.gpus < 1 || d.gpus > maxDeliveryGPUs:
		return fmt.Errorf("--gpus: %d is not between 1 and %d", d.gpus, maxDeliveryGPUs)
	case d.setting.Seconds < 1 || d.setting.Seconds > maxSeconds:
		return fmt.Errorf("--seconds: %d is not between 1 and %d", d.setting.Seconds, maxSeconds)
	case d.setting.Window <= 0 || d.setting.Turn <= 0:
		return fmt.Errorf("--window and --turn: %v and %v are not both positive", d.setting.Window, d.setting.Turn)
	case d.setting.SwitchLoss < 0 || d.setting.SwitchLoss > d.setting.Turn:
		return fmt.Errorf("--switch-loss: %v is not between 0 and a turn", d.setting.SwitchLoss)
	}
	_, err := token.New(token.Config{Window: d.setting.Window, Turn: d.setting.Turn})
	return err
}

func (d *deliverySimulation) run(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	s := d.setting
	s.Policy = delivery.Policies()[slices.Index(tokenNames(), policy)]
	gpus, err := delivery.Fill(ctx, d.admission, shapes.Families()[d.familyName], d.gpus, s, seed)
	if err != nil {
		return nil, err
	}
	total, err := delivery.RunAll(ctx, gpus, s)
	if err != nil {
		return nil, err
	}
	d.worst[policy] = append(d.worst[policy], total.WorstShares...)
	return []report.Figure{
		{Name: "gpus", Value: float64(len(gpus))},
		{Name: "pods", Value: float64(total.Pods)},
		{Name: "gpus_all_served_percent", Value: total.ServedPercent(), Digits: 1},
		{Name: "worst_share", Value: slices.Min(total.WorstShares), Digits: 3},
		{Name: "mean_worst_share", Value: total.MeanWorstShare(), Digits: 3},
		{Name: "longest_gap_ms", Value: float64(total.LongestGap) / float64(time.Millisecond), Digits: 1},
	}, nil
}

// chart returns, for each policy, the distribution over the GPUs of the fraction of its quota that the worst-served pod of the GPU got.
func (d *deliverySimulation) chart(summaries []report.Summary) *chart.Chart {
	c := &chart.Chart{
		Title: fmt.Sprintf("%s, admitted by %s, %v turns, %v lost at a switch", d.familyName, d.admission, d.setting.Turn, d.setting.SwitchLoss),
		X:     "part of its quota that the worst pod of a GPU got", Y: "part of the GPUs",
	}
	for _, s := range summaries {
		line := chart.Line{Name: s.Policy}
		shares := slices.Sorted(slices.Values(d.worst[s.Policy]))
		for k, x := range shares {
			n := float64(len(shares))
			line.Points = append(line.Points, chart.Point{X: x, Y: float64(k) / n}, chart.Point{X: x, Y: float64(k+1) / n})
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}
