package unseen

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// onVCPUs maps the names of the models, as in Slices, to those with which HarmonyBatch's authors published fits on vCPUs.
var onVCPUs = map[string]string{"bert": "Bert", "resnet50": "ResNet50", "vgg19": "VGG19"}

// fits are curves over the vCPUs, one for each batch size from 1.
type fits [][3]float64

func (f fits) curves() (all []profile.Exponential) {
	for _, c := range f {
		all = append(all, profile.Exponential{Alpha: profile.Seconds(c[0]), Beta: c[1], Gamma: profile.Seconds(c[2])})
	}
	return all
}

// readVCPUs reads the curves of all models on vCPUs.
func readVCPUs(read Read) (map[string]profile.CPU, error) {
	text, err := read("harmonybatch/model_all.json")
	if err != nil {
		return nil, err
	}
	var models map[string]struct{ CPU struct{ Avg, Max fits } }
	if err := json.Unmarshal(text, &models); err != nil {
		return nil, err
	}
	all := map[string]profile.CPU{}
	for name, theirs := range onVCPUs {
		m := models[theirs].CPU
		if len(m.Avg) == 0 || len(m.Avg) != len(m.Max) {
			return nil, fmt.Errorf("%s has no curves", theirs)
		}
		all[name] = profile.CPU{Mean: m.Avg.curves(), P99: m.Max.curves()}
	}
	return all, nil
}

// OnVCPUs leaves out a model. Only its mean latency for a batch of one is known; the other models tell how much longer larger batches and the p99
// take. It returns the errors of the means and of the p99s, over 0.25 to 4 vCPUs. The file has no licence, and is not in the repository.
func OnVCPUs(model string, read Read) (mean, p99 Errors, err error) {
	all, err := readVCPUs(read)
	if err != nil {
		return mean, p99, err
	}
	if _, ok := all[model]; !ok {
		return mean, p99, errors.New("it was not measured on vCPUs: want bert, resnet50 or vgg19")
	}
	var own, ownTails surface
	var others, otherTails []surface
	for name, m := range all {
		means, tails := surfaceOf(m)
		if name == model {
			own, ownTails = means, tails
		} else {
			others, otherTails = append(others, means), append(otherTails, tails)
		}
	}
	one := func(at place) place { return place{cpu: at.cpu, batch: 1} }
	mean = errorsOf(extend(own, others, one), own)
	// The p99 is also predicted from the mean of one request.
	p99 = errorsOf(extendTails(own, ownTails, others, otherTails), ownTails)
	return mean, p99, nil
}

// extendTails predicts the p99 of all batches from the mean of one request.
func extendTails(own, tails surface, others, otherTails []surface) surface {
	join := func(means, tails surface) surface {
		both := surface{}
		for at, x := range means {
			if at.batch == 1 {
				both[place{cpu: at.cpu}] = x
			}
		}
		for at, x := range tails {
			both[at] = x
		}
		return both
	}
	var joined []surface
	for i := range others {
		joined = append(joined, join(others[i], otherTails[i]))
	}
	return extend(join(own, tails), joined, func(at place) place { return place{cpu: at.cpu} })
}

// surfaceOf returns the means and the p99s of curves, at vCPUs from 0.25 to 4 that increase by a quarter each.
func surfaceOf(m profile.CPU) (mean, p99 surface) {
	mean, p99 = surface{}, surface{}
	for batch := 1; batch <= len(m.Mean); batch++ {
		for c := 250.0; c <= 4000; c *= 1.25 {
			l := m.Latency(batch, profile.MilliCPU(c))
			at := place{cpu: profile.MilliCPU(c), batch: batch}
			mean[at], p99[at] = float64(l.Mean), float64(l.P99)
		}
	}
	return mean, p99
}

func duration(seconds float64) time.Duration { return time.Duration(math.Round(seconds * 1e9)) }
