package planning

import "github.com/gshare-dev/gshare/vgpu/profile"

// HarmonyBatch plans as HarmonyBatch does, on whole functions with vCPUs or part of a GPU only. It is a yardstick of our
// own writing: sizes and batches are found exactly, and a merge that no configuration could serve is not made (P20).
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
	m := kneeMerging{merging: merging{o, alone(o, sorted)}}
	for _, a := range sorted {
		m.knees = append(m.knees, o.knee(a.SLO))
	}
	m.fillUp()
	m.pairs(true)
	m.pairs(false)
	return m.groups
}

// kneeMerging also knows the rate at which each group's most urgent application would turn to a GPU.
type kneeMerging struct {
	merging
	knees []float64
}

// fillUp merges groups on vCPUs, whatever that costs, once their rates together reach the knee of the first.
func (m *kneeMerging) fillUp() {
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

// pairs merges neighbours where that costs no more: first those on one side of their knees, then all.
func (m *kneeMerging) pairs(sameSide bool) {
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

func (m *kneeMerging) beyond(i int) bool { return m.groups[i].Rate() >= m.knees[i] }

func (m *kneeMerging) joinAt(i, j int, joined Group) {
	m.replace(i, j, joined)
	m.knees = append(m.knees[:i+1], m.knees[j:]...)
}

// The rates between which HarmonyBatch looks for a knee, and how closely.
const (
	leastKnee = 0.01
	mostKnee  = 40
	kneeWidth = 0.01
)

// knee returns the rate at which one application with this SLO turns to a GPU, by bisection (P5).
func (o *options) knee(slo profile.Seconds) float64 {
	low, high := leastKnee, float64(mostKnee)
	for high-low > kneeWidth {
		rate := (low + high) / 2
		if c := o.provision(demand{slo, rate, slo}); c.feasible() && c.config.Mode.onGPU() {
			high = rate
		} else {
			low = rate
		}
	}
	return high
}
