package pipeline

import (
	"errors"
	"math"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Demand is the request rate that an instance has to sustain and the latency objective that it has to meet.
type Demand struct {
	SLO   time.Duration // maximum time from arrival to reply of one request
	Queue time.Duration // expected time that a request waits before it starts
	Rate  float64       // requests a second that the instance has to sustain; 0 means any
	// Candidates is the number of fitting partitions, in the order of the ranking, whose assignments are compared (U7). 0 and 1
	// select the first one that fits, as in the paper (FF-34).
	Candidates int
}

// MaxRate is the largest valid request rate: one request per microsecond.
const MaxRate = 1e6

func (d Demand) validate() error {
	switch {
	case d.SLO <= 0 || d.SLO > 24*time.Hour:
		return share.Invalid("slo", "%v is not above 0 and at most a day", d.SLO)
	case d.Queue < 0 || d.Queue > 24*time.Hour:
		return share.Invalid("queue", "%v is outside 0 to a day", d.Queue)
	case !(d.Rate >= 0 && d.Rate <= MaxRate): // NaN too
		return share.Invalid("rate", "%v requests/s is outside 0 to %g", d.Rate, float64(MaxRate))
	case d.Candidates < 0:
		return share.Invalid("candidates", "%d is negative", d.Candidates)
	}
	return nil
}

// maxPartTime returns the longest mean time that a request may spend on one slice of the pipeline if the rate is to be sustained.
func (d Demand) maxPartTime() time.Duration {
	if d.Rate == 0 {
		return math.MaxInt64
	}
	return time.Duration(min(1e9/d.Rate, math.MaxInt64/2))
}

// The reasons why a function cannot be assigned. With ErrRate its memory fits, with ErrSLO also the rate can be sustained.
var (
	ErrNoFit = errors.New("no partition fits the free slices: more or larger slices are needed")
	ErrRate  = errors.New("no partition that fits the free slices sustains the rate: larger slices or more instances are needed")
	ErrSLO   = errors.New("no partition that fits the free slices meets the SLO: larger slices or a longer SLO are needed")
)
