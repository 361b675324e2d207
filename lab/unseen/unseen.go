// Package unseen tests how well the latencies of a hardly measured model can be predicted from published measurements of other models. It leaves out
// each model in turn, and extends its measurements on one resource to other resources by the ratios that the other models have in common.
package unseen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// Read returns the content of a published file, such as parvagpu/bert.csv.
type Read func(name string) ([]byte, error)

// place is where a latency was measured: the batch size, and either a slice of a GPU, in sevenths, or vCPUs.
type place struct {
	slice int
	cpu   profile.MilliCPU
	batch int
}

// surface maps places to a model's latencies in seconds.
type surface map[place]float64

// Errors are the errors of predictions, as fractions of the measured values.
type Errors struct {
	Mean, Worst float64
	Points      int
}

// errorsOf compares predictions with what was measured.
func errorsOf(predicted, measured surface) Errors {
	var e Errors
	for at, p := range predicted {
		one := math.Abs(p/measured[at] - 1)
		e.Mean, e.Worst, e.Points = e.Mean+one, max(e.Worst, one), e.Points+1
	}
	e.Mean /= float64(max(e.Points, 1))
	return e
}

// extend predicts the latencies of a model at each place from its latency at the place's base, by the geometric mean of the ratios that other models
// have between the two. It leaves out places at which no other model was measured, and the bases themselves.
func extend(model surface, others []surface, base func(place) place) surface {
	predicted := surface{}
	for at := range model {
		from := base(at)
		known, ok := model[from]
		if !ok || from == at {
			continue
		}
		sum, n := 0.0, 0
		for _, o := range others {
			if there, here := o[at], o[from]; there > 0 && here > 0 {
				sum, n = sum+math.Log(there/here), n+1
			}
		}
		if n > 0 {
			predicted[at] = known * math.Exp(sum/float64(n))
		}
	}
	return predicted
}

// Slices returns the models that ParvaGPU measured on MIG instances of an A100.
func Slices() []string {
	return []string{"bert", "densenet121", "inceptionv3", "mobilenetv2", "resnet50", "vgg19"}
}

// whole is the largest MIG instance of an A100, in sevenths of its SMs.
const whole = 7

// readSlices reads the latencies of a model that runs as one process on each MIG instance.
func readSlices(model string, read Read) (surface, error) {
	text, err := read("parvagpu/" + model + ".csv")
	if err != nil {
		return nil, err
	}
	s := surface{}
	for row, err := range table.Rows(strings.NewReader(string(text)), "Mig instance", "Batch size", "Workload Number", "Throughput") {
		if err != nil {
			return nil, err
		}
		var numbers []float64
		for _, column := range []string{"Mig instance", "Batch size", "Workload Number", "Throughput"} {
			x, err := strconv.ParseFloat(row.Text(column), 64)
			if err != nil {
				return nil, fmt.Errorf("line %d, %s: %w", row.Line, column, err)
			}
			numbers = append(numbers, x)
		}
		if numbers[2] == 1 && numbers[3] > 0 { // 0: it did not fit the memory
			s[place{slice: int(numbers[0]), batch: int(numbers[1])}] = numbers[1] / numbers[3] // from the rate, because the published latency is rounded to milliseconds
		}
	}
	return s, nil
}

// OnSlices leaves out a model of Slices. The model is known only on the whole GPU; the other models tell how much slower it gets on parts of it. The
// profiles are those of the measured and of the predicted latencies.
func OnSlices(model string, read Read) (e Errors, measured, predicted profile.Model, err error) {
	if !slices.Contains(Slices(), model) {
		return e, measured, predicted, fmt.Errorf("there is no model %.64q: want one of %v", model, Slices())
	}
	var own surface
	var others []surface
	for _, name := range Slices() {
		s, err := readSlices(name, read)
		if err != nil {
			return e, measured, predicted, err
		}
		if name == model {
			own = s
		} else {
			others = append(others, s)
		}
	}
	guess := extend(own, others, func(at place) place { return place{slice: whole, batch: at.batch} })
	e = errorsOf(guess, own)
	for at, latency := range own {
		if at.slice == whole {
			guess[at] = latency
		}
	}
	if measured, err = own.profile(model); err == nil {
		predicted, err = guess.profile(model)
	}
	return e, measured, predicted, err
}

// maxBatch is the largest batch of the profiles: all models were measured with it on the smallest instance.
const maxBatch = 32

// profile fits the latency of a model on shares to a surface.
func (s surface) profile(name string) (profile.Model, error) {
	var points []profile.Point
	for at, latency := range s {
		if at.batch <= maxBatch {
			points = append(points, profile.Point{
				Model: name, Resource: profile.Resource{SM: share.Whole * share.PerMille(at.slice) / whole, Quota: share.Whole}, Batch: at.batch, Mean: duration(latency),
			})
		}
	}
	slices.SortFunc(points, func(a, b profile.Point) int { return int(a.Mean - b.Mean) }) // a map has no order
	m, _, err := profile.FitShare(points, maxBatch, 0.1, 2*share.Bytes(1<<30))
	if err != nil {
		return profile.Model{}, err
	}
	m.Tail = profile.Linear{Slope: 1.1} // tails were not published
	return profile.Model{Name: name, Share: m}, nil
}
