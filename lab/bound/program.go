package bound

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// column is a variable of the program: one way to use devices of a node type, and how many times the program uses it.
type column struct {
	node  int
	gpus  int64 // number of devices that it takes
	pods  []counted
	times float64 // in the last solution
}

// counted is a number of pods of one class.
type counted struct{ class, count int }

// program is the linear program, with those combinations of requests on a device that were found worthwhile so far. Its rows are the
// demand of each class, followed by the CPU, the memory and the devices of each node type.
type program struct {
	*Problem
	classes []class
	columns []column
	limits  []float64 // of the rows
	dual    []float64 // of the rows, in GPUs
	basis   []int     // of the last solution; nil if that was degenerate
	value   float64
}

func newProgram(p *Problem, classes []class) *program {
	m := &program{Problem: p, classes: classes}
	for _, k := range classes {
		m.limits = append(m.limits, k.demand)
	}
	for _, t := range p.types {
		m.limits = append(m.limits, float64(t.count*t.cpu)/1000)
	}
	for _, t := range p.types {
		m.limits = append(m.limits, float64(t.count*t.memory)/1024)
	}
	for _, t := range p.types {
		m.limits = append(m.limits, float64(t.count*t.gpus))
	}
	m.perturb()
	for k := range classes {
		m.addSingles(k)
	}
	return m
}

// perturb changes the limits by up to one part in a hundred thousand, so that no two corners of the program coincide. Otherwise gonum's
// simplex method might cycle, or end with a basis that cannot be told.
func (m *program) perturb() {
	random := rand.New(rand.NewPCG(1, 1))
	for i := range m.limits {
		m.limits[i] *= 1 + 1e-5*random.Float64()
	}
}

// addSingles adds, for each node type that can hold class k, the column with as many of its pods as a device holds.
func (m *program) addSingles(k int) {
	c := &m.classes[k]
	copies := 1
	if c.gpus == 1 {
		copies = int(whole / c.milli)
	}
	for t, fits := range c.fits {
		if fits {
			m.columns = append(m.columns, column{node: t, gpus: c.gpus, pods: []counted{{k, copies}}})
		}
	}
}

// Rows of a node type.
func (m *program) cpuRow(t int) int    { return len(m.classes) + t }
func (m *program) memoryRow(t int) int { return len(m.classes) + len(m.types) + t }
func (m *program) deviceRow(t int) int { return len(m.classes) + 2*len(m.types) + t }

// solve finds the optimum over the present columns. If gonum returns an error, solve uses the corner reached by then, whose prices are
// just as valid.
func (m *program) solve() {
	rows := len(m.limits)
	a := mat.NewDense(rows, rows+len(m.columns), nil)
	cost := make([]float64, rows+len(m.columns))
	for i := range rows {
		a.Set(i, i, 1) // the slack of the row
	}
	for j, c := range m.columns {
		at := rows + j
		a.Set(m.deviceRow(c.node), at, float64(c.gpus))
		for _, x := range c.pods {
			pod, n := &m.classes[x.class], float64(x.count)
			a.Set(x.class, at, n)
			a.Set(m.cpuRow(c.node), at, a.At(m.cpuRow(c.node), at)+n*pod.cpu)
			a.Set(m.memoryRow(c.node), at, a.At(m.memoryRow(c.node), at)+n*pod.memory)
			cost[at] -= n * pod.value
		}
	}
	start := m.basis
	if start == nil {
		start = make([]int, rows)
		for i := range start {
			start[i] = i
		}
	}
	value, x, _ := lp.Simplex(cost, a, m.limits, 1e-9, start)
	m.value = -value
	for j := range m.columns {
		m.columns[j].times = x[rows+j]
	}
	m.learnDual(a, cost, x)
}

// learnDual computes the dual variables from the basis. gonum does not return the basis; it consists of the variables above zero.
func (m *program) learnDual(a *mat.Dense, cost, x []float64) {
	rows := len(m.limits)
	var basis []int
	for j, v := range x {
		if v > 1e-9 {
			basis = append(basis, j)
		}
	}
	b, c := mat.NewDense(len(basis), rows, nil), mat.NewVecDense(len(basis), nil)
	for i, j := range basis {
		c.SetVec(i, -cost[j])
		b.SetRow(i, mat.Col(nil, j, a))
	}
	var y mat.VecDense
	_ = y.SolveVec(b, c) // an ill-conditioned basis makes poor prices, but not wrong ones
	m.dual = y.RawVector().Data
	m.basis = nil
	if len(basis) == rows {
		m.basis = basis
	}
}
