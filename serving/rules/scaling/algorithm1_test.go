package scaling

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The cases of F1: as printed, the first and the last never end.
func TestScaleDown(t *testing.T) {
	for name, c := range map[string]struct {
		gap   Rate
		queue []Rate
		want  int
	}{
		"the front is needed":         {-10, []Rate{12}, 0},
		"two go, the third is needed": {-10, []Rate{4, 5, 12}, 2},
		"never past the front":        {-10, []Rate{12, 1}, 0},
		"all go":                      {-9, []Rate{4, 5}, 2},
		"load above the throughput":   {1, []Rate{1}, 0},
		"empty":                       {-10, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ScaleDown(c.gap, c.queue); got != c.want {
				t.Errorf("%d go, want %d", got, c.want)
			}
		})
	}
}

func randomChoices(random *rand.Rand) []Configuration {
	choices := make([]Configuration, 1+random.IntN(12))
	for i := range choices {
		choices[i] = Configuration{Throughput: Rate(random.ExpFloat64()*20 + 1)}
		choices[i].Share.SMRequest = share.PerMille(1 + random.IntN(1000))
		choices[i].Share.QuotaRequest = share.PerMille(1 + random.IntN(1000))
	}
	return choices
}

// What is added serves the gap; without its last, it does not. The order of the choices does not matter.
func TestScaleUpProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	for range 2000 {
		choices, gap := randomChoices(random), Rate(random.NormFloat64()*200)
		added, err := ScaleUp(gap, choices, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		total := Rate(0)
		for _, a := range added {
			total += a.Throughput
		}
		if total < gap-negligibleRate*1.001-gap*1e-12 {
			t.Fatalf("%v added for a gap of %v", total, gap)
		}
		if n := len(added); n > 0 && total-added[n-1].Throughput >= gap {
			t.Fatalf("the last of %d is not needed", n)
		}
		random.Shuffle(len(choices), func(i, j int) { choices[i], choices[j] = choices[j], choices[i] })
		if again, _ := ScaleUp(gap, choices, math.MaxInt); !slices.Equal(added, again) {
			t.Fatalf("%v, in another order %v", added, again)
		}
		if some, _ := ScaleUp(gap, choices, 3); !slices.Equal(some, added[:min(3, len(added))]) {
			t.Fatalf("at most three of %v: %v", added, some)
		}
	}
}

// leastThroughput is the printed rule for the last instance: the slowest configuration with a throughput above r, whatever its SM-time.
func leastThroughput(r Rate, choices []Configuration) Configuration {
	enough := slices.DeleteFunc(slices.Clone(choices), func(c Configuration) bool { return c.Throughput <= r })
	return slices.MinFunc(enough, func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.Throughput, b.Throughput), cmp.Compare(a.area(), b.area()), byShare(a, b))
	})
}

// No residual of the printed rule takes less SM-time, and taking one more of the efficient instead never does (F7).
func TestLeastAreaProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 0))
	saved := false
	for range 2000 {
		choices := randomChoices(random)
		efficient, err := MostEfficient(choices)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range choices {
			if c.PerResource() > efficient.PerResource() {
				t.Fatalf("%v is more efficient than %v", c, efficient)
			}
		}
		rest := efficient.Throughput * Rate(random.Float64())
		small, printed := leastArea(rest, choices), leastThroughput(rest, choices)
		if small.Throughput < rest || small.area() > printed.area() || small.area() > efficient.area() {
			t.Fatalf("%v for %v, printed %v, efficient %v", small, rest, printed, efficient)
		}
		saved = saved || small.area() < printed.area()
	}
	if !saved {
		t.Error("the two rules never differ")
	}
}

// The load stays served, the queue is taken from the front, and one more would be too many.
func TestScaleDownProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 0))
	for range 2000 {
		gap, queue := Rate(random.NormFloat64()*50), make([]Rate, random.IntN(10))
		for i := range queue {
			queue[i] = Rate(random.ExpFloat64() * 10)
		}
		n := ScaleDown(gap, queue)
		if n > 0 && gap+sum(queue[:n]) > 1e-9 {
			t.Fatalf("gap %v after %d of %v go", gap+sum(queue[:n]), n, queue)
		}
		if n < len(queue) && gap+sum(queue[:n+1]) <= 0 {
			t.Fatalf("%d of %v go, one more is not needed", n, queue)
		}
	}
}

func TestScaleUpRefuses(t *testing.T) {
	good := Configuration{Share: share.Share{SMRequest: 100, QuotaRequest: 100}, Throughput: 1}
	for field, broken := range map[string]func(*Configuration, *Rate){
		"gap":         func(_ *Configuration, gap *Rate) { *gap = Rate(nan()) },
		"throughput":  func(c *Configuration, _ *Rate) { c.Throughput = Rate(math.Inf(1)) },
		"throughput ": func(c *Configuration, _ *Rate) { c.Throughput = -1 },
		"sm":          func(c *Configuration, _ *Rate) { c.Share.SMRequest = 0 },
		"quota":       func(c *Configuration, _ *Rate) { c.Share.QuotaRequest = 1001 },
	} {
		c, gap := good, Rate(1)
		broken(&c, &gap)
		_, err := ScaleUp(gap, []Configuration{c}, 1)
		wantField(t, map[bool]string{true: "throughput", false: field}[field == "throughput "], err)
	}
	if _, err := ScaleUp(1, nil, 1); !errors.Is(err, ErrUnservable) {
		t.Errorf("no choice: %v", err)
	}
}

func sum(rates []Rate) Rate {
	var total Rate
	for _, r := range rates {
		total += r
	}
	return total
}
