package planning

import "github.com/gshare-dev/gshare/serving/rules/profile"

// HarmonyBatch plans with the algorithm of the HarmonyBatch paper, for whole models on vCPUs or a fraction of a GPU. It is a baseline.
// It improves on the paper in two respects: it finds resources and batch sizes exactly, and rejects merges that no configuration can
// serve.
func HarmonyBatch(in Input) (Plan, error) {
	var modes []Mode
	for _, mode := range []Mode{CPU, GPU} {
		if contains(in.Modes, mode) {
			modes = append(modes, mode)
		}
	}
	return solve(in, modes, byKnees)
}

func byKnees(o *options, sorted []Application) []Group {
	m := kneeMerge{greedyMerge: greedyMerge{o, singleGroups(o, sorted)}}
	for _, a := range sorted {
		m.knees = append(m.knees, o.knee(a.SLO))
	}
	m.mergeToKnee()
	m.mergePairs(true)
	m.mergePairs(false)
	return m.groups
}

// kneeMerge merges groups as HarmonyBatch does. The knee of a group is the rate at which its most urgent application becomes cheaper on a
// GPU.
type kneeMerge struct {
	greedyMerge
	knees []float64
}

// mergeToKnee merges consecutive groups on vCPUs, regardless of cost, until their total rate reaches the knee of the first one.
func (m *kneeMerge) mergeToKnee() {
	for i := 0; i < len(m.groups); i++ {
		rate := m.groups[i].Rate()
		for j := i + 1; j < len(m.groups) && !m.onGPU(i) && !m.onGPU(j); j++ {
			if rate += m.groups[j].Rate(); rate >= m.knees[i] {
				m.joinAt(i, j+1, m.join(i, j+1))
				break
			}
		}
	}
}

// mergePairs merges neighbouring groups if that costs no more. If sameSide is set, the rates of both must be on the same side of their
// knees.
func (m *kneeMerge) mergePairs(sameSide bool) {
	for i := 0; i+1 < len(m.groups); {
		joined := m.join(i, i+2)
		if (!sameSide || m.beyond(i) == m.beyond(i+1)) && joined.Cost <= m.groups[i].Cost+m.groups[i+1].Cost {
			m.joinAt(i, i+2, joined)
			i = max(0, i-1)
		} else {
			i++
		}
	}
}

func (m *kneeMerge) beyond(i int) bool { return m.groups[i].Rate() >= m.knees[i] }

func (m *kneeMerge) joinAt(i, j int, joined Group) {
	m.replace(i, j, joined)
	m.knees = append(m.knees[:i+1], m.knees[j:]...)
}

// leastKnee and mostKnee bound the rates, per second, in which knee searches; kneeWidth is its resolution.
const (
	leastKnee = 0.01
	mostKnee  = 40
	kneeWidth = 0.01
)

// knee returns the rate, in requests per second, at which one application with the given SLO becomes cheaper on a GPU than on vCPUs. It
// is found by bisection.
func (o *options) knee(slo profile.Seconds) float64 {
	low, high := leastKnee, float64(mostKnee)
	for high-low > kneeWidth { // P5
		rate := (low + high) / 2
		if c := o.provision(demand{slo, rate, slo}); c.feasible() && c.config.Mode.onGPU() {
			high = rate
		} else {
			low = rate
		}
	}
	return high
}
