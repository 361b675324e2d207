package packing

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestShapeOf(t *testing.T) {
	typed := podOf(fixed(50, 40))
	typed.Request.Models, typed.Request.Slice = []string{"A100", "H200"}, share.WholeGPU
	staged := podOf(fixed(100, 100), fixed(100, 100))
	staged.Request.Slice, staged.Request.Containers[0].Slice = share.AnyMIG, "3g.40gb"
	base := Shape{CPU: 1000, RAM: 1 << 30}
	with := func(change func(*Shape)) Shape { s := base; change(&s); return s }
	for name, c := range map[string]struct {
		pod  *Pod
		want Shape
	}{
		"no GPU":       {podOf(), base},
		"a part":       {podOf(fixed(50, 40)), with(func(s *Shape) { s.VGPUs, s.Milli, s.Memory = 1, 200, 1<<30 })},
		"rounded up":   {podOf(share.Share{SMRequest: 333, QuotaRequest: 10}), with(func(s *Shape) { s.VGPUs, s.Milli = 1, 4 })},
		"several GPUs": {wide(4, fixed(100, 100)), with(func(s *Shape) { s.VGPUs, s.Milli, s.Memory = 4, 1000, 1<<30 })},
		"a sidecar counts with the mean": {withSidecar(wide(2, withMemory(fixed(100, 100), 9)), 40),
			with(func(s *Shape) { s.VGPUs, s.Milli, s.Memory = 3, 800, 9<<30 })},
		"kinds of containers": {staged, with(func(s *Shape) { s.VGPUs, s.Milli, s.Memory, s.Kind = 2, 1000, 1<<30, "3g.40gb,mig" })},
		"models and kind": {typed, with(func(s *Shape) {
			s.VGPUs, s.Milli, s.Memory, s.Models, s.Kind = 1, 200, 1<<30, "A100,H200", "gpu"
		})},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ShapeOf(c.pod)); diff != "" {
				t.Errorf("%s", diff)
			}
		})
	}
}

func TestMixReturnsToEmpty(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	var m Mix
	var added []Shape
	for range 300 {
		s := Shape{VGPUs: 1 + random.IntN(2), Milli: MilliGPU(1 + random.IntN(5)), CPU: MilliCPU(random.IntN(3))}
		m.Add(s, 2)
		m.Add(s, -1)
		added = append(added, s)
	}
	if m.Pods() != 300 {
		t.Errorf("%d pods, want 300", m.Pods())
	}
	random.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] })
	for _, s := range added {
		m.Add(s, -1)
	}
	if len(m.counts) != 0 || m.Pods() != 0 || m.gpu != 0 || m.cpu != 0 || len(m.typicalShapes()) != 0 {
		t.Errorf("left over: %+v", m)
	}
}

// milliShape returns a different shape for each number.
func milliShape(i int) Shape { return Shape{VGPUs: 1, Milli: MilliGPU(i + 1)} }

func TestTypicalShapes(t *testing.T) {
	var skewed, even, many Mix
	skewed.Add(milliShape(0), 60)
	skewed.Add(milliShape(1), 35)
	skewed.Add(milliShape(2), 4)
	skewed.Add(milliShape(3), 1)
	for i := range 40 {
		even.Add(milliShape(i), 5)
	}
	for i := range 300 {
		many.Add(milliShape(i), 1+i/10)
	}
	for name, c := range map[string]struct {
		mix        *Mix
		want       int
		wantWeight ppm // of the first shape
	}{
		"none":                               {&Mix{}, 0, 0},
		"two stand for 95 %":                 {&skewed, 2, 60 * one / 95},
		"38 of 40 equal ones":                {&even, 38, one / 38},
		"64 of very many, the most frequent": {&many, maxTypical, 30 * one / (10*(30+29+28+27+26+25) + 4*24)},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.mix.typicalShapes()
			if len(got) != c.want {
				t.Errorf("%d typical shapes, want %d", len(got), c.want)
				return
			}
			var sum ppm
			for i, s := range got {
				sum += s.weight
				if i > 0 && s.weight > got[i-1].weight {
					t.Errorf("shape %d is more popular than the one before", i)
				}
			}
			if len(got) > 0 && (got[0].weight != c.wantWeight || sum > one || sum < one-ppm(len(got))) {
				t.Errorf("first weight %d, want %d; together %d", got[0].weight, c.wantWeight, sum)
			}
		})
	}
}

// TestDemandDependsOnTheMixAlone: the same pods result in the same demand in any order of arrival, even if other pods came
// and left.
func TestDemandDependsOnTheMixAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	c := Capacity{GPU: 20_000, FreeGPU: 10_000, CPU: 400_000, FreeCPU: 200_000, Models: map[string]MilliGPU{"A100": 12_000, "H200": 8_000}}
	shapes := make([]Shape, 100)
	for i := range shapes {
		shapes[i] = Shape{
			VGPUs: 1 + i%2, Milli: MilliGPU(10 + i%7*100), Memory: share.Bytes(i % 3), CPU: MilliCPU(i%11) * 1000, RAM: share.Bytes(i % 5),
			Models: []string{"", "", "A100", "H200", "A100,H200"}[i%5], Kind: []string{"gpu", "mig"}[i%2],
		}
	}
	var want *Demand
	for range 5 {
		var m Mix
		for _, i := range random.Perm(len(shapes)) {
			m.Add(shapes[i], 1+i%3)
			m.Add(shapes[(i+1)%len(shapes)], 1)
		}
		for _, s := range shapes {
			m.Add(s, -1)
		}
		got := NewDemand(&m, c)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Demand{}, typicalShape{})); diff != "" {
			t.Fatal(diff)
		}
	}
}
