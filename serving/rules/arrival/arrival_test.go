package arrival

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []Series
	}{
		"rates": {"1\n2.5\n\n0\n", []Series{{"rate", time.Second, []float64{1, 2.5, 0}}}},
		"requests, by the second from the first": {"app,func,end_timestamp,duration\na,f,10.5,0.5\na,g,13,1\na,f,10.9,0.1\n",
			[]Series{{"f", time.Second, []float64{2, 0, 0}}, {"g", time.Second, []float64{0, 0, 1}}}},
		"dates": {"TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.6805900,1\n2023-11-16 18:15:48.0,2\n",
			[]Series{{"requests", time.Second, []float64{1, 1}}}},
		"minutes": {"HashOwner,HashFunction,Trigger,1,2\no,f,http,0,1\no,g,http,5,5\n",
			[]Series{{"g", time.Minute, []float64{5, 5}}, {"f", time.Minute, []float64{0, 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(c.text)
			if err != nil || !slices.EqualFunc(got, c.want, func(a, b Series) bool {
				return a.Name == b.Name && a.Step == b.Step && slices.Equal(a.Counts, b.Counts)
			}) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for text, field := range map[string]string{
		"":        "trace",
		"1\n-2\n": "line 2, rate",
		"NaN":     "line 1, rate",
		"1e300":   "counts[0]",
		"Inf\n":   "line 1, rate",
		"app,func,end_timestamp,duration\na,f,x,1\n":             "line 2, end_timestamp",
		"app,func,end_timestamp,duration\na,f,1,NaN\n":           "line 2, duration",
		"app,func,end_timestamp,duration\na,f,1e15,0\na,f,1,0\n": "trace",
		"app,end_timestamp,duration\na,1,1\n":                    "line 1",
		"app,func,end_timestamp,duration\n":                      "trace",
		"TIMESTAMP\nyesterday\n":                                 "line 2, TIMESTAMP",
		"HashFunction,Trigger,1\nf,http,many\n":                  "line 2, minute 1",
		"TIMESTAMP,\n0\"0":                                       "csv",
		"HashFunction,Trigger\nf,http\n":                         "line 1",
		"app,func,end_timestamp,duration\na,f\n":                 "csv",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := Read(text)
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%q: %v, want an error of %s", text, err, field)
			}
		})
	}
}

func source(counts ...float64) Source {
	return Source{Series: &Series{Step: time.Second, Counts: counts}, Scale: 1}
}

// Counts are means: of many seconds at one rate, as many requests come as in a Poisson process, within five deviations.
func TestArrivalsFollowTheRate(t *testing.T) {
	s := source(10, 0, 30)
	s.Scale = 2
	all := Draw([]Source{s}, 3000*time.Second, 1)
	var bySecond [3]float64
	last := time.Duration(0)
	for _, a := range all {
		if a.At < last || a.At >= 3000*time.Second {
			t.Fatalf("%v after %v", a.At, last)
		}
		last = a.At
		bySecond[int(a.At/time.Second)%3]++
	}
	for i, want := range []float64{20_000, 0, 60_000} {
		if math.Abs(bySecond[i]-want) > 5*math.Sqrt(want) {
			t.Errorf("second %d: %v requests, want about %v", i, bySecond[i], want)
		}
	}
}

func TestArrivalsDependOnTheSeedAlone(t *testing.T) {
	one, two := source(5, 5), source(7)
	a := Draw([]Source{one}, 20*time.Second, 3)
	if !slices.Equal(a, Draw([]Source{one}, 20*time.Second, 3)) || slices.Equal(a, Draw([]Source{one}, 20*time.Second, 4)) {
		t.Error("the seed does not decide")
	}
	both := slices.DeleteFunc(Draw([]Source{one, two}, 20*time.Second, 3), func(x Arrival) bool { return x.Function != 0 })
	if !slices.Equal(a, both) {
		t.Error("another function changes the requests of the first")
	}
	one.Shift = time.Second
	if slices.Equal(a, Draw([]Source{source(5, 0)}, 20*time.Second, 3)) {
		t.Error("the rate does not matter")
	}
}

func TestSumAndCoarser(t *testing.T) {
	sum := Sum([]Series{{Step: time.Second, Counts: []float64{1, 2, 3}}, {Step: time.Second, Counts: []float64{1}}})
	coarse := sum.Coarser(2)
	if !slices.Equal(sum.Counts, []float64{2, 2, 3}) || !slices.Equal(coarse.Counts, []float64{4, 3}) || coarse.Step != 2*time.Second {
		t.Errorf("%v, %v", sum, coarse)
	}
}

func TestSourceRefuses(t *testing.T) {
	for field, s := range map[string]Source{
		"scale": {Series: &Series{Step: time.Second, Counts: []float64{1}}, Scale: math.NaN()},
		"shift": {Series: &Series{Step: time.Second, Counts: []float64{1}}, Scale: 1, Shift: -1},
		"step":  {Series: &Series{Counts: []float64{1}}, Scale: 1},
	} {
		t.Run(field, func(t *testing.T) {
			err := s.Validate()
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%v, want an error of %s", err, field)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add("1\n2\n")
	f.Add("app,func,end_timestamp,duration\na,f,10.5,0.5\n")
	f.Add("TIMESTAMP,x\n2023-11-16 18:15:46.6805900,1\n")
	f.Add("HashFunction,Trigger,1,2\nf,http,0,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Read(text)
		if err != nil {
			if field := (*share.FieldError)(nil); !errors.As(err, &field) || strings.TrimSpace(field.Field) == "" {
				t.Fatalf("%v names no field", err)
			}
			return
		}
		for i := range all {
			if err := all[i].Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestGaps checks mean and variation of the gaps of each process, and that a constant rate with even gaps has even arrivals.
func TestGaps(t *testing.T) {
	gamma := func(cv float64) Gaps {
		g, err := Gamma(cv)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	constant := &Series{Step: time.Second, Counts: []float64{10}}
	for _, c := range []struct {
		name string
		gaps Gaps
		cv   float64
	}{{"default", nil, 1}, {"exponential", Exponential, 1}, {"even", Even, 0}, {"gamma 0.5", gamma(0.5), 0.5}, {"gamma 3", gamma(3), 3}} {
		t.Run(c.name, func(t *testing.T) {
			all := Draw([]Source{{Series: constant, Scale: 1, Gaps: c.gaps}}, 20_000*time.Second, 1)
			var sum, squares float64
			for i := 1; i < len(all); i++ {
				gap := (all[i].At - all[i-1].At).Seconds()
				sum, squares = sum+gap, squares+gap*gap
			}
			n := float64(len(all) - 1)
			mean := sum / n
			cv := math.Sqrt(max(0, squares/n-mean*mean)) / mean
			if math.Abs(mean-0.1) > 0.005 || math.Abs(cv-c.cv) > 0.05*max(c.cv, 0.1) {
				t.Errorf("mean gap %.4f s with variation %.3f, want 0.1 s and %v", mean, cv, c.cv)
			}
		})
	}
	for _, cv := range []float64{0, -1, 101, math.NaN()} {
		if _, err := Gamma(cv); err == nil {
			t.Errorf("gamma with variation %v is taken", cv)
		}
	}
}

// TestRamp checks that a ramp rises linearly and has as many requests as its mean rate.
func TestRamp(t *testing.T) {
	s := Ramp(0, 100, 50)
	if s.Counts[0] != 1 || s.Counts[49] != 99 || s.Rate() != 50 {
		t.Errorf("from 0 to 100 in 50 s: %v first, %v last, %v in the mean", s.Counts[0], s.Counts[49], s.Rate())
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}
