package profile

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/published"
	"github.com/gshare-dev/gshare/vgpu/table"
)

func TestFitExponentialRecovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		want := Exponential{Seconds(0.5 + 8*r.Float64()), 0.2 + r.Float64(), Seconds(0.05 + r.Float64())}
		var c []MilliCPU
		var y []float64
		for at := MilliCPU(50); at <= 4000; at += 150 {
			c, y = append(c, at), append(y, float64(want.At(at)))
		}
		got, e, err := FitExponential(c, y)
		if err != nil || e > 1e-4 || math.Abs(got.Beta-want.Beta) > 1e-3 {
			t.Errorf("%+v gave %+v, MAPE %v (%v)", want, got, e, err)
		}
	}
}

// TestFitSpread: measurements that scatter by 5 % are met about as closely; a straight line meets them worse.
func TestFitSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	truth := Exponential{4, 0.5, 0.3}
	var c []MilliCPU
	var x, y []float64
	for at := MilliCPU(100); at <= 4000; at += 100 {
		c, x, y = append(c, at), append(x, float64(at)), append(y, float64(truth.At(at))*(1+0.05*r.NormFloat64()))
	}
	_, e, err := FitExponential(c, y)
	_, line, _ := FitLinear(x, y)
	t.Logf("exponential %.2f %%, line %.2f %%", 100*e, 100*line)
	if err != nil || e > 0.05 || line < 4*e {
		t.Errorf("exponential %v, line %v (%v)", e, line, err)
	}
}

func TestFitCPU(t *testing.T) {
	mean, p99 := Exponential{2, 0.5, 0.2}, Exponential{3, 0.6, 0.3}
	var points []Point
	for batch := 1; batch <= 2; batch++ {
		for c := MilliCPU(100); c <= 3000; c += 200 {
			points = append(points, Point{
				Model: "m", Resource: Resource{CPU: c}, Batch: batch,
				Mean: duration(mean.At(c)) * time.Duration(batch), P99: duration(p99.At(c)) * time.Duration(batch),
			})
		}
	}
	m, accuracy, err := FitCPU(points)
	if err != nil || len(m.Mean) != 2 || accuracy.Mean > 1e-4 || accuracy.P99 > 1e-4 {
		t.Fatalf("%+v %+v %v", m, accuracy, err)
	}
	if got := m.Latency(2, 1500).P99; math.Abs(float64(got-2*p99.At(1500))) > 1e-3 {
		t.Errorf("p99 of 2: %v", got)
	}
	points[3].Resource = Resource{Slice: "1g.10gb"}
	_, _, err = FitCPU(points)
	expectField(t, err, "points[3].resource")
}

func duration(s Seconds) time.Duration { return time.Duration(float64(s) * 1e9) }

func TestFitTail(t *testing.T) {
	m := Share{Curves: []ShareCurve{{SM: 500, Exclusive: Linear{0.004, 0.002}}}, Window: 0.1}
	truth := m
	truth.Tail = Linear{1.2, 0.003}
	var points []Point
	for batch := 1; batch <= 16; batch *= 2 {
		l := truth.Latency(batch, 0, 250)
		points = append(points, Point{Model: "m", Resource: Resource{SM: 500, Quota: 250}, Batch: batch, Mean: duration(l.Mean), P99: duration(l.P99)})
	}
	got, e, err := m.FitTail(points)
	if err != nil || e > 1e-6 || math.Abs(got.Slope-1.2) > 1e-3 {
		t.Errorf("%+v, MAPE %v, %v", got, e, err)
	}
}

func TestFitRefuses(t *testing.T) {
	_, _, err := FitLinear([]float64{1, 1}, []float64{1, 2})
	expectField(t, err, "points")
	_, _, err = FitLinear([]float64{1, 2}, []float64{1, math.NaN()})
	expectField(t, err, "latency")
	_, _, err = FitExponential([]MilliCPU{1, 2, 3}, []float64{1, 2, 0})
	expectField(t, err, "latency")
	_, _, err = FitCPU(nil)
	expectField(t, err, "batch 1.points")
}

func FuzzFit(f *testing.F) {
	f.Add(int64(1), int64(2), int64(3), 1.0, 2.0, 3.0)
	f.Fuzz(func(t *testing.T, a, b, c int64, x, y, z float64) {
		at := []MilliCPU{MilliCPU(a), MilliCPU(b), MilliCPU(c)}
		if e, _, err := FitExponential(at, []float64{x, y, z}); err == nil && e.Validate() != nil {
			t.Errorf("fitted %+v: %v", e, e.Validate())
		}
		if l, _, err := FitLinear([]float64{float64(a), float64(b), float64(c)}, []float64{x, y, z}); err == nil && l.Validate() != nil {
			t.Errorf("fitted %+v: %v", l, l.Validate())
		}
	})
}

// TestParvaGPU fits the latency over the batch to measurements of an A100: one process on each size of MIG instance.
// PAMBA reports errors of 3.9 and 2.7 % for its two models on another GPU. Here the error is at most 4 % for VGG19 on every instance and
// for BERT on the largest. The latency of the other models is flat for small batches, where the GPU is not full, and no straight line
// comes nearer than 5 to 15 %. The test therefore compares the fit with the best of all lines, and bounds the error of each model.
func TestParvaGPU(t *testing.T) {
	for model, most := range map[string]MAPE{
		"vgg19": 0.04, "bert": 0.075, "densenet121": 0.145, "inceptionv3": 0.12, "mobilenetv2": 0.165, "resnet50": 0.13,
	} {
		t.Run(model, func(t *testing.T) {
			for slice, points := range parvaPoints(t, model) {
				line, e, err := FitBatches(points)
				least := leastMAPE(points)
				t.Logf("%sg: %.2f ms + %.3f ms a request, MAPE %.1f %%, of the best line %.1f %%", slice, 1e3*line.Intercept, 1e3*line.Slope, 100*e, 100*least)
				if err != nil || e > most || e > 0.04 && e > 1.4*least || e < least-1e-9 {
					t.Errorf("%s: %+v, MAPE %.1f %%, want at most %.1f %% and near %.1f %% (%v)", slice, line, 100*e, 100*most, 100*least, err)
				}
				if model == "bert" && slice == "7" && e > 0.04 {
					t.Errorf("MAPE %.1f %%, want at most 4 %%", 100*e)
				}
			}
		})
	}
}

// leastMAPE returns the least error of any line over the points: a line with the least sum of absolute errors goes through two of them.
func leastMAPE(points []Point) MAPE {
	var x, y []float64
	for _, p := range points {
		x, y = append(x, float64(p.Batch)), append(y, p.Mean.Seconds())
	}
	least := MAPE(math.Inf(1))
	for i := range x {
		for j := range i {
			slope := (y[i] - y[j]) / (x[i] - x[j])
			least = min(least, mape(x, y, func(at float64) float64 { return y[i] + slope*(at-x[i]) }))
		}
	}
	return least
}

func parvaPoints(t *testing.T, model string) map[string][]Point {
	points := map[string][]Point{}
	for r, err := range table.Rows(strings.NewReader(published.Read(t, "parvagpu/"+model+".csv"))) {
		if err != nil {
			t.Fatal(err)
		}
		row := r.Fields
		batch, err := strconv.Atoi(row[1])
		throughput, err2 := strconv.ParseFloat(row[3], 64)
		if err != nil || err2 != nil {
			t.Fatalf("%s: row %v", model, row)
		}
		if row[2] == "1" && throughput > 0 { // 0: did not fit into the memory. The latency column is rounded to milliseconds;
			// one process has batch/latency as throughput
			latency := time.Duration(float64(batch) / throughput * 1e9)
			points[row[0]] = append(points[row[0]], Point{Model: model, Resource: Resource{Slice: row[0] + "g"}, Batch: batch, Mean: latency, Throughput: throughput})
		}
	}
	return points
}
