package profileview

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Measured is a model with the latencies on shares that a profile has measured.
type Measured struct {
	Model profile.Model
	GPU   string       // on whose model it was measured; empty if that is not known
	Error profile.MAPE // of the worst curve against what it was fitted to
	Stale bool
	Why   string // it is Stale
	Ended bool   // before the search was complete
}

// largestError is the mean error of a curve against what it was fitted to above which a plan says so.
const largestError = 0.1

// Fit returns a model with the latencies that a profile has measured of it, for batches of up to the size that it recommends and with the memory that it
// recommends. The window is that of the nodes whose shares are planned. The error names the field, or says why the profile has nothing to plan with.
func Fit(model string, p *api.GPUProfile, window time.Duration) (*Measured, error) {
	r, err := RecommendedOf(p)
	if err != nil {
		return nil, err
	}
	if p.Spec.Training != nil {
		return nil, errors.New("spec.training: a program that answers no requests has no latencies")
	}
	var points []profile.Point
	for i, m := range p.Status.Points {
		if m.Failed != "" || m.MeanMicroseconds == 0 {
			continue
		}
		point, err := pointOf(model, &m)
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("status.points[%d]", i), err)
		}
		points = append(points, point)
	}
	shares, worst, err := profile.FitShare(points, p.Status.Recommended.MaxBatch, profile.Seconds(window.Seconds()), r.Memory)
	if err != nil {
		return nil, err
	}
	m := &Measured{Model: profile.Model{Name: model, Share: shares}, Error: worst}
	if f := p.Status.Fingerprint; f != nil {
		m.GPU = f.Model
	}
	m.Why, m.Stale = IsStale(p)
	return m, nil
}

func pointOf(model string, m *api.ProfilePoint) (profile.Point, error) {
	const most = math.MaxInt64 / int64(time.Microsecond)
	switch {
	case m.SM < 1 || m.SM > 100:
		return profile.Point{}, share.Invalid("sm", "%d is not from 1 to 100", m.SM)
	case m.Quota < 1 || m.Quota > 100:
		return profile.Point{}, share.Invalid("quota", "%d is not from 1 to 100", m.Quota)
	case m.MeanMicroseconds > most || m.P99Microseconds > most:
		return profile.Point{}, share.Invalid("meanMicroseconds, p99Microseconds", "more than %d", most)
	}
	return profile.Point{
		Model: model, Resource: profile.Resource{SM: share.PerMille(10 * m.SM), Quota: share.PerMille(10 * m.Quota)}, Batch: m.Batch,
		Mean: time.Duration(m.MeanMicroseconds) * time.Microsecond, P99: time.Duration(m.P99Microseconds) * time.Microsecond,
	}, nil
}

// Notes returns what whoever reads a plan should know of the latencies. The source is what has measured them, such as GPUProfile resnet50.
func (m *Measured) Notes(source string) []string {
	on := ""
	if m.GPU != "" {
		on = " on " + printable(m.GPU)
	}
	notes := []string{fmt.Sprintf("the latencies are those of %s%s, for batches of up to %d", source, on, m.Model.Share.MaxBatch)}
	if m.Stale {
		notes = append(notes, fmt.Sprintf("%s is Stale: %s", source, printable(m.Why)))
	}
	if m.Ended {
		notes = append(notes, source+" is of a search that was ended early: a smaller share may do")
	}
	if m.Error > largestError {
		notes = append(notes, fmt.Sprintf("%s: the latencies are no line over the batch, from which they are %.0f%% away", source, 100*m.Error))
	}
	return notes
}

// printable replaces what a terminal might take for a command, as notes are printed there and a file may be another's.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Best returns the profile with the most trials of those that are not Stale or, if all are, of all; where two have as many, the one with the first name. It is
// nil if there is none that is complete and recommends a share.
func Best(all []*api.GPUProfile) *api.GPUProfile {
	complete := slices.DeleteFunc(slices.Clone(all), func(p *api.GPUProfile) bool { return !isComplete(p) })
	if len(complete) == 0 {
		return nil
	}
	return slices.MinFunc(complete, func(a, b *api.GPUProfile) int {
		_, aStale := IsStale(a)
		_, bStale := IsStale(b)
		switch {
		case !aStale && bStale:
			return -1
		case aStale && !bStale:
			return 1
		}
		return cmp.Or(cmp.Compare(len(b.Status.Points), len(a.Status.Points)), cmp.Compare(Name(a), Name(b)))
	})
}
