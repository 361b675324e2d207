package pipeline

import (
	"errors"
	"math"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Demand is what an instance has to do.
type Demand struct {
	SLO   time.Duration // from arrival to answer, of one request
	Queue time.Duration // that a request is expected to wait before it starts
	Rate  float64       // requests a second that the instance has to carry; 0 is any
	// Candidates is among how many partitions that fit, in the order of the ranking, the best is taken once their slices
	// are known (U7). 1, and 0 too, takes the first that fits as the paper does (FF-34).
	Candidates int
}

// MaxRate bounds rates: no slice answers a request in less than a microsecond.
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

// slowest is the longest expected time of a part with which the rate is carried.
func (d Demand) slowest() time.Duration {
	if d.Rate == 0 {
		return math.MaxInt64
	}
	return time.Duration(min(1e9/d.Rate, math.MaxInt64/2))
}

// Why a function cannot be placed. The later one came closer: ErrRate had room, ErrSLO room and throughput.
var (
	ErrRoom = errors.New("no partition's parts fit the free slices: more or larger ones are needed")
	ErrRate = errors.New("no partition that fits the free slices carries the rate: larger ones are needed, or a lower rate for each of more instances")
	ErrSLO  = errors.New("no partition that fits the free slices keeps the SLO: larger ones are needed, or a longer SLO")
)
