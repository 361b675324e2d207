package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// shapesSimulation holds the flags and results of gshare-lab simulate shapes, which packs pods of random SM and quota requests on GPUs.
type shapesSimulation struct {
	familyName, openbPods string
	pods                  int
	reserve               float64
	memoryGiB             int64
	churn                 bool

	family shapes.Family
}

const shapesLong = `Pack pods that request a part of a GPU's SMs for a part of the time, one after another, and count the GPUs.

Figures of each run:
  gpus             GPUs in use at the end
  lower_bound      minimum number of GPUs for any packing: the fractional configuration LP over all pods
  ratio            gpus / lower_bound
  density_percent  requested SM-time, in percent of the SM-time of the GPUs in use
  ns_per_pod       time per decision, on one thread

With --churn, pods start and end on 30 GPUs: Poisson arrivals with 1.1 times the SM-time of the GPUs, exponential lifetimes. Pods that do
not fit are dropped. The first third of the arrivals is not counted. The figures are gpus, density_percent (the mean over time),
refused_percent (of the requested SM-time) and ns_per_pod.

Policies:
  mra            FaST-GShare's maximal rectangles with keep-restructure, never packed again to fit a pod
  mra-repack     the same, packed again before an empty GPU is taken
  best-area      rectangles computed anew for each pod, which must have a slot table as well: the scheduler's profile gshare-rectangle
  maxrects-bssf  maximal rectangles, best short side fit
  replan         rectangles, all arranged again for each pod, fullest GPU first
  slot-best-fit  slots, fullest GPU first, as gshare's scheduler chooses within a node
  slot           slots, GPU with the most valuable pods first: quota times the price of the SM share in the configuration LP over
                 the pods so far

--reserve is the part of each window that a GPU keeps free for switching between sets of pods. It applies to all policies. The published
policies have no reserve, so compare them with 0, too.`

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
	f.StringVar(&s.openbPods, "openb-pods", openbPods, "file with the list of pods for the family openb")
	f.IntVar(&s.pods, "pods", 0, "number of pods (default: 1000, or 5000 with --churn)")
	f.Float64Var(&s.reserve, "reserve", 0, "part of each window that a GPU keeps free for switching, such as 0.05")
	f.Int64Var(&s.memoryGiB, "slice-memory", 80, "memory of a GPU in GiB")
	f.BoolVar(&s.churn, "churn", false, "let pods start and end")
}

// Upper bounds of flags, to catch typing errors.
const (
	maxShapes    = 1_000_000
	maxMemoryGiB = 1 << 20
	maxReserve   = 0.5
)

func (s *shapesSimulation) prepare() error {
	switch {
	case s.pods < 0 || s.pods > maxShapes:
		return fmt.Errorf("--pods: %d is not between 1 and %d", s.pods, maxShapes)
	case !(s.reserve >= 0 && s.reserve <= maxReserve): // NaN, too
		return fmt.Errorf("--reserve: %v is not between 0 and %v", s.reserve, maxReserve)
	case s.memoryGiB < 1 || s.memoryGiB > maxMemoryGiB:
		return fmt.Errorf("--slice-memory: %d is not between 1 and %d", s.memoryGiB, maxMemoryGiB)
	}
	if s.pods == 0 {
		s.pods = s.defaultPods()
	}
	return s.readFamily()
}

// defaultPods returns the number of pods to pack if the flag --pods is not set.
func (s *shapesSimulation) defaultPods() int {
	if s.churn {
		return 5000
	}
	return 1000
}

const (
	openbFamily = "openb" // draws from the pods of openb that request a part of one GPU
	openbNodes  = dataset.Prefix + "openb/openb_node_list_gpu_node.csv"
	openbPods   = dataset.Prefix + "openb/openb_pod_list_default.csv"
)

func shapesFamilies() []string { return slices.Sorted(maps.Keys(shapes.Families())) }

func shapesFamilyHelp() string {
	return strings.Join(shapesFamilies(), ", ") + ", " + openbFamily + ", or a CSV file to draw from: quota,sm,mem in percent, percent and MiB"
}

func (s *shapesSimulation) readFamily() (err error) {
	family, known := shapes.Families()[s.familyName]
	var pods []shapes.Pod
	switch {
	case known:
		s.family = family
		return nil
	case s.familyName == openbFamily:
		pods, err = readOpenb(s.openbPods)
	case strings.HasSuffix(s.familyName, ".csv"):
		pods, err = s.readShapes(s.familyName)
	default:
		err = fmt.Errorf("--family: unknown family %q: must be one of %s, %s, or a .csv file", s.familyName, strings.Join(shapesFamilies(), ", "), openbFamily)
	}
	s.family = shapes.SampleOf(pods)
	return err
}

func (s *shapesSimulation) readShapes(file string) ([]shapes.Pod, error) {
	text, err := dataset.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pods, err := shapes.Parse(string(text), share.Bytes(s.memoryGiB)<<30)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return pods, nil
}

// readOpenb returns those pods of an openb pod list that request a fraction of one GPU.
func readOpenb(file string) ([]shapes.Pod, error) {
	list, err := trace.ReadPods(file)
	if err != nil {
		return nil, err
	}
	var pods []shapes.Pod
	for _, p := range list {
		if p.GPUs == 1 && p.MilliGPU < 1000 {
			pods = append(pods, shapes.OfMilliGPU(int(p.MilliGPU)))
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s: no pod requests a part of one GPU", file)
	}
	return pods, nil
}
