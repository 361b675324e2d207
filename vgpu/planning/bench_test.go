package planning

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

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
