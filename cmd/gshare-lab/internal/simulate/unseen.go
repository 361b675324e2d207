package simulate

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/unseen"
)

// unseenSimulation holds the flags of gshare-lab simulate unseen, which predicts one model from measurements of others.
type unseenSimulation struct{ data string }

const unseenLong = `Leave one model out of published measurements, and predict it from the other models and what little is known of it. --policy is the model.

--data parvagpu: latencies on MIG instances of an A100. The model is known only on the whole GPU. The other models tell how much slower it
is on parts of the GPU.
--data harmonybatch: curves on vCPUs, of bert, resnet50 and vgg19, from a file that has no licence and is therefore not in the repository.
The mean of a batch of one is known. The other models tell how much longer larger batches, and the p99, take.

Figures of each run:
  error_percent, worst_percent  mean and maximum error of the predicted latencies
  p99_error_percent             vCPUs: error of the p99
  points                        number of predicted latencies
  broken, groups                GPUs: a plan for eight random applications is made from the prediction; groups that miss their objectives
                                according to the measurements, and all groups
  above_percent                 by how much the other groups cost more than necessary
  saving_percent                by how much the best plan is cheaper than each application by itself`

func simulateUnseen() *simulation {
	u := &unseenSimulation{}
	return &simulation{
		name: "unseen", short: "Predict a model from what others have in common", long: unseenLong,
		example:  "  gshare-lab simulate unseen --policy all --runs 20\n  gshare-lab simulate unseen --data harmonybatch --policy bert,resnet50,vgg19",
		policies: unseen.Slices(), flags: u.flags, prepare: u.prepare, run: u.run,
	}
}

func (u *unseenSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&u.data, "data", "parvagpu", "published measurements: parvagpu or harmonybatch")
}

func (u *unseenSimulation) prepare() error {
	if u.data != "parvagpu" && u.data != "harmonybatch" {
		return fmt.Errorf("--data: unknown value %q: must be parvagpu or harmonybatch", u.data)
	}
	return nil
}

func (u *unseenSimulation) run(_ context.Context, model string, seed uint64) ([]report.Figure, error) {
	if u.data == "harmonybatch" {
		mean, p99, err := unseen.OnVCPUs(model, readPublished)
		return []report.Figure{
			{Name: "error_percent", Value: 100 * mean.Mean, Digits: 1}, {Name: "worst_percent", Value: 100 * mean.Worst, Digits: 1},
			{Name: "p99_error_percent", Value: 100 * p99.Mean, Digits: 1}, {Name: "points", Value: float64(mean.Points)},
		}, err
	}
	e, measured, predicted, err := unseen.OnSlices(model, readPublished)
	if err != nil {
		return nil, err
	}
	plan, err := unseen.Plan(measured, predicted, seed)
	return []report.Figure{
		{Name: "error_percent", Value: 100 * e.Mean, Digits: 1}, {Name: "worst_percent", Value: 100 * e.Worst, Digits: 1}, {Name: "points", Value: float64(e.Points)},
		{Name: "broken", Value: float64(plan.Broken), Digits: 2}, {Name: "groups", Value: float64(plan.Groups), Digits: 2},
		{Name: "above_percent", Value: 100 * plan.Above, Digits: 1}, {Name: "saving_percent", Value: 100 * plan.Separate, Digits: 1},
	}, err
}

func readPublished(name string) ([]byte, error) { return dataset.ReadFile(dataset.Prefix + name) }
