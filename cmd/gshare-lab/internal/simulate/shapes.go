package simulate

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/lab/shapes"
)

// shapesSimulation is gshare-lab simulate shapes.
type shapesSimulation struct {
	familyName, openbPods string
	pods                  int
	reserve               float64
	memoryGiB             int64
	churn                 bool

	family shapes.Family
}

const shapesLong = `shapes packs pods that want a part of a GPU's SMs for a part of the time, one after another, and counts GPUs.

Each run gives:
  gpus             GPUs in use at the end
  lower_bound      GPUs below which no packing exists: the configuration LP over all pods, fractional
  ratio            gpus / lower_bound
  density_percent  SM-time asked for, in percent of that of the GPUs in use
  ns_per_pod       time to decide and book, on one thread

With --churn pods come and go on 30 GPUs: Poisson arrivals that offer 1.1 times their SM-time, exponential lifetimes; a pod that
finds no room goes away. The first third of the arrivals is not counted. Then a run gives gpus, density_percent (the mean over
time), refused_percent (of the SM-time offered) and ns_per_pod.

Policies:
  mra            FaST-GShare's maximal rectangles with keep-restructure
  maxrects-bssf  maximal rectangles, best short side fit
  replan         rectangles planned anew for each pod, fullest GPU first
  slot-best-fit  slots, fullest GPU first, as gshare's scheduler chooses within a node
  slot           slots, the GPU first that is fullest in what its pods are worth: quota times the price of their SM share in the
                 configuration LP over the pods so far

The reserve holds for all policies: a GPU that switches between sets of pods keeps that part of every window free. The
published policies know none; compare them at 0 too.`

func simulateShapes() *simulation {
	s := &shapesSimulation{}
	return &simulation{
		name: "shapes", short: "Pack pods of mixed SM shares and quotas on GPUs", long: shapesLong,
		example:  "  gshare-lab simulate shapes --family papermix --policy all --runs 10\n  gshare-lab simulate shapes --family mine.csv --policy slot --churn -o json",
		policies: shapes.Policies(), flags: s.flags, prepare: s.prepare, run: s.run, chart: s.chart,
	}
}

func (s *shapesSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&s.familyName, "family", "papermix", shapesFamilyHelp())
	f.StringVar(&s.openbPods, "openb-pods", openbPods, "list of pods for the family openb")
	f.IntVar(&s.pods, "pods", 0, "number of pods (default 1000, or 5000 with --churn)")
	f.Float64Var(&s.reserve, "reserve", 0, "part of every window that a GPU keeps back if it switches, such as 0.05")
	f.Int64Var(&s.memoryGiB, "slice-memory", 80, "memory of a GPU in GiB")
	f.BoolVar(&s.churn, "churn", false, "let pods come and go")
}

// The most that is simulated: beyond it somebody has mistyped.
const (
	maxShapes    = 1_000_000
	maxMemoryGiB = 1 << 20
	maxReserve   = 0.5
)

func (s *shapesSimulation) prepare() error {
	switch {
	case s.pods < 0 || s.pods > maxShapes:
		return fmt.Errorf("--pods: %d is not between 1 and %d", s.pods, maxShapes)
	case !(s.reserve >= 0 && s.reserve <= maxReserve): // NaN too
		return fmt.Errorf("--reserve: %v is not between 0 and %v", s.reserve, maxReserve)
	case s.memoryGiB < 1 || s.memoryGiB > maxMemoryGiB:
		return fmt.Errorf("--slice-memory: %d is not between 1 and %d", s.memoryGiB, maxMemoryGiB)
	}
	if s.pods == 0 {
		s.pods = s.usualPods()
	}
	return s.readFamily()
}

func (s *shapesSimulation) usualPods() int {
	if s.churn {
		return 5000
	}
	return 1000
}
