package unseen

import (
	"math"
	"testing"

	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/test/published"
)

func read(name string) ([]byte, error) { return dataset.ReadFile(dataset.Prefix + name) }

// TestExtend: a model that is slower than the others by one factor is known from one place.
func TestExtend(t *testing.T) {
	at := func(slice int) place { return place{slice: slice, batch: 1} }
	others := []surface{{at(1): 7, at(3): 2, at(7): 1}, {at(1): 14, at(3): 8, at(7): 2}}
	base := func(place) place { return at(7) }
	got := extend(surface{at(1): 21, at(3): 6, at(7): 3, at(2): 9}, others, base)
	if want := 3 * math.Sqrt(2*4); len(got) != 2 || math.Abs(got[at(1)]-21) > 1e-9 || math.Abs(got[at(3)]-want) > 1e-9 {
		t.Errorf("%v, want 21 and %v alone: nobody else was measured on 2", got, want)
	}
	if e := errorsOf(got, surface{at(1): 21, at(3): want3}); e.Points != 2 || math.Abs(e.Worst-(3*math.Sqrt(8)/want3-1)) > 1e-9 || math.Abs(e.Mean-e.Worst/2) > 1e-9 {
		t.Errorf("%+v", e)
	}
}

const want3 = 6.0

// TestOnSlices: each model is better known by the others than by what its SMs alone say, so that their ratios are worth something; and a plan of a prediction
// is worth less than one of measurements, or the same.
func TestOnSlices(t *testing.T) {
	better := 0
	for _, model := range Slices() {
		t.Run(model, func(t *testing.T) {
			e, measured, predicted, err := OnSlices(model, read)
			if err != nil {
				t.Fatal(err)
			}
			own, err := readSlices(model, read)
			if err != nil {
				t.Fatal(err)
			}
			bySMs := surface{}
			for at := range own {
				if at.slice < whole && own[place{slice: whole, batch: at.batch}] > 0 {
					bySMs[at] = own[place{slice: whole, batch: at.batch}] * whole / float64(at.slice)
				}
			}
			simple := errorsOf(bySMs, own)
			t.Logf("%d points: %.1f %% in the mean, %.1f %% at most; by SMs alone %.1f %%", e.Points, 100*e.Mean, 100*e.Worst, 100*simple.Mean)
			if e.Points < 20 || e.Mean > 0.6 {
				t.Errorf("%+v", e)
			}
			if e.Mean < simple.Mean {
				better++
			}
			exact, err := Plan(measured, measured, 1)
			if err != nil || exact.Broken > 0 || exact.Groups == 0 || math.Abs(exact.Above) > 1e-9 {
				t.Errorf("a plan of measurements: %+v, %v", exact, err)
			}
			guessed, err := Plan(measured, predicted, 1)
			if err != nil || guessed.Above < -1e-9 {
				t.Errorf("a plan of a prediction: %+v, %v", guessed, err)
			}
		})
	}
	if better < 4 {
		t.Errorf("%d models are better known by the others than by their SMs", better)
	}
	if _, _, _, err := OnSlices("gpt", read); err == nil {
		t.Error("no error for a model that nobody has measured")
	}
}

// TestOnVCPUs: each model is known within a factor of two by the other two.
func TestOnVCPUs(t *testing.T) {
	published.Read(t, "harmonybatch/model_all.json")
	for model := range onVCPUs {
		mean, p99, err := OnVCPUs(model, read)
		if err != nil || mean.Points < 30 || p99.Points < 40 || mean.Mean > 1 || p99.Mean > 1 {
			t.Errorf("%s: %+v, %+v, %v", model, mean, p99, err)
		}
		t.Logf("%s: means %.1f %%, p99 %.1f %%", model, 100*mean.Mean, 100*p99.Mean)
	}
	if _, _, err := OnVCPUs("mobilenetv2", read); err == nil {
		t.Error("no error for a model that was not measured on vCPUs")
	}
}
