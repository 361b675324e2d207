package serving

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/planning"
)

// maxInstances is the maximum number of instances of a function. It is so high that only the GPUs limit them.
const maxInstances = 1000

// drainTime is how long after the end of the trace requests may still be answered.
const drainTime = time.Minute

// Run simulates a policy and returns its result, which is the same for the same input. It returns a *share.FieldError for an invalid
// input.
func Run(ctx context.Context, in *Input, policy string) (Result, error) {
	if err := in.Validate(); err != nil {
		return Result{}, err
	}
	at := slices.IndexFunc(Policies(), func(p Policy) bool { return p.Name == policy })
	if at < 0 {
		return Result{}, fmt.Errorf("policy: %.64q is not known", policy)
	}
	c, r := &clock{}, newRecord(in)
	w, err := Policies()[at].make(in, c, r)
	if err != nil {
		return Result{}, err
	}
	if err := runEvents(ctx, in, c, w); err != nil {
		return Result{}, err
	}
	result := r.finish()
	w.finish(&priceList{in.Prices}, &result)
	return result, nil
}

// runEvents runs the arrivals, the scheduled events and the end of each second in the order of time, until drainTime after the trace.
func runEvents(ctx context.Context, in *Input, c *clock, w simulation) error {
	next, second := 0, time.Second
	end := in.Until + drainTime
	for {
		at, what := end, 0
		if t, ok := c.nextTime(); ok && t < at {
			at, what = t, 1
		}
		if second < at {
			at, what = second, 2
		}
		if next < len(in.Arrivals) && in.Arrivals[next].At < at {
			at, what = in.Arrivals[next].At, 3
		}
		switch what {
		case 0:
			c.now = end
			return nil
		case 1:
			c.runNext()
		case 2:
			c.now = second
			second += time.Second
			if err := cmp.Or(ctx.Err(), w.everySecond()); err != nil {
				return err
			}
		case 3:
			c.now = at
			w.arrive(int32(next))
			next++
		}
	}
}

// priceList computes the price of used resources.
type priceList struct{ book planning.Book }

const nano = 1e-9

// price returns the price of GPU time and memory, in units of the currency.
func (p *priceList) price(gpuSeconds, gbSeconds float64) float64 {
	return nano * (float64(p.book.Slice)*gpuSeconds + float64(p.book.SliceMemory)*gbSeconds)
}
