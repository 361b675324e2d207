package planning

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"syscall"
	"testing"
)

// countingProvisioner counts how many groups of applications a planner prices, and how often it looks at a configuration for that.
type countingProvisioner struct {
	*options
	groups, configurations int
}

func (p *countingProvisioner) provision(d demand) choice {
	p.groups++
	for b := range p.byBatch { // as options.provision: a binary search in each batch size
		p.configurations += bits.Len(uint(len(p.byBatch[b])))
	}
	p.configurations += len(p.reserved)
	return p.options.provision(d)
}

// TestPlanningEffort bounds the work of the planner, of which PAMBA says that it takes less than 0.1 s for up to 8 applications. Time
// depends on the machine, so the test counts: each set of applications is priced once, and once more if it becomes a group. For a price it
// looks at up to 2,000 configurations, whose number is bounded, too. BenchmarkBest measures the whole: 2.8 ms of processor time for 8
// applications on a shared EPYC (make bench-rules).
func TestPlanningEffort(t *testing.T) {
	for n := 1; n <= 10; n++ {
		for seed := range uint64(5) {
			p := effort(t, seed, n)
			if most := 1<<n - 1 + n; p.groups > most {
				t.Errorf("%d applications: %d groups priced, want at most %d", n, p.groups, most)
			}
			if n == 8 && p.configurations > 600_000 {
				t.Errorf("%d applications: looked at %d configurations", n, p.configurations)
			}
		}
	}
	if p := effort(t, 1, 11); p.groups > 500 { // no longer all sets, of which there are 2,047
		t.Errorf("11 applications: %d groups priced", p.groups)
	}
	for _, n := range []int{50, 200} { // runs of neighbours, then a local search
		p := effort(t, 1, n)
		t.Logf("%d applications: %d groups priced, %d configurations looked at", n, p.groups, p.configurations)
		if most := n * (n + 1) / 2 * 2; p.groups > most {
			t.Errorf("%d applications: %d groups priced, want at most %d", n, p.groups, most)
		}
	}
}

func effort(t *testing.T, seed uint64, n int) *countingProvisioner {
	t.Helper()
	in := randomInput(rand.New(rand.NewPCG(seed, 1)), n, DefaultPlatform())
	p := &countingProvisioner{options: newOptions(&in.Models[0], &in, in.Modes)}
	kept := len(p.reserved)
	for _, b := range p.byBatch {
		kept += len(b)
	}
	if kept > 4_000 {
		t.Errorf("%d configurations are kept", kept)
	}
	var plan Plan
	cheapest(p, plan.addInfeasible(p.options, in.applicationsOf(in.Models[0].Name)))
	if n == 8 {
		t.Logf("seed %d: %d applications: %d groups priced, %d configurations looked at, %d kept", seed, n, p.groups, p.configurations, kept)
	}
	return p
}

// BenchmarkBest: targets are 5 ms for 8 applications and 2 s for 200 (N-P5: the paper takes 36 to 84 ms for 8). The time
// on the processor is what the planner needs; the other also has what it waits for others on a busy machine.
func BenchmarkBest(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8, 50, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := randomInput(rand.New(rand.NewPCG(1, 1)), n, DefaultPlatform())
			before := cpuSeconds(b)
			for b.Loop() {
				if _, err := Best(in); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(1000*(cpuSeconds(b)-before)/float64(b.N), "cpu-ms/op")
		})
	}
}

func cpuSeconds(tb testing.TB) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
