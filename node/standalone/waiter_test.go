package standalone

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestWaitReasons: who waits hears each reason once, also a later one, and that MPS is not ready only if that lasts.
func TestWaitReasons(t *testing.T) {
	const memory, limits, starting, hangs = "insufficient GPU memory", "limits above 150 %", "MPS: the slice is not shared", "MPS: it hangs"
	type attempt struct {
		after   time.Duration // the one before
		reason  string
		onlyMPS bool
	}
	for name, test := range map[string]struct {
		attempts []attempt
		want     []string
	}{
		"one":                      {[]attempt{{0, memory, false}}, []string{memory}},
		"the same again":           {[]attempt{{0, memory, false}, {time.Minute, memory, false}}, []string{memory}},
		"another":                  {[]attempt{{0, memory, false}, {time.Minute, limits, false}}, []string{memory, limits}},
		"the first again":          {[]attempt{{0, memory, false}, {time.Minute, limits, false}, {time.Minute, memory, false}}, []string{memory, limits, memory}},
		"MPS starts":               {[]attempt{{0, starting, true}, {20 * time.Millisecond, limits, false}}, []string{limits}},
		"MPS does not start":       {[]attempt{{0, starting, true}, {2 * time.Second, limits, false}}, []string{starting, limits}},
		"MPS hangs":                {[]attempt{{0, starting, true}, {600 * time.Millisecond, hangs, true}, {600 * time.Millisecond, limits, false}}, []string{hangs, limits}},
		"MPS starts, and again":    {[]attempt{{0, memory, false}, {time.Minute, starting, true}, {time.Millisecond, memory, false}}, []string{memory}},
		"MPS does not serve again": {[]attempt{{0, starting, true}, {time.Minute, starting, true}, {time.Minute, starting, true}}, []string{starting}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaiter(process.Process{}, "a", share.Request{})
				ctx, cancel := context.WithCancel(t.Context())
				var told []string
				done := make(chan struct{})
				go func() {
					defer close(done)
					if grant, refusal := w.await(ctx, func(why *control.Refusal) { told = append(told, why.Reason) }); grant != nil || refusal != nil {
						t.Errorf("got %v, %v", grant, refusal)
					}
				}()
				for _, a := range test.attempts {
					time.Sleep(a.after)
					w.onlyMPS = a.onlyMPS
					w.setReason(&control.Refusal{Reason: a.reason})
					synctest.Wait()
				}
				cancel()
				<-done
				if !slices.Equal(told, test.want) {
					t.Errorf("told %q, want %q", told, test.want)
				}
			})
		})
	}
}

// TestSlowReader: of reasons that follow each other faster than they are told, the last counts.
func TestSlowReader(t *testing.T) {
	w := newWaiter(process.Process{}, "a", share.Request{})
	for _, reason := range []string{"a", "b", "c"} {
		w.setReason(&control.Refusal{Reason: reason})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var told []string
	w.await(ctx, func(why *control.Refusal) { told = append(told, why.Reason); cancel() })
	if !slices.Equal(told, []string{"c"}) {
		t.Errorf("told %q", told)
	}
}
