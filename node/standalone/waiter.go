package standalone

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// waiter is a request for a share, with the process that sent it. It is queued if the share is not free.
type waiter struct {
	id      string // of the run that it may become
	process process.Process
	name    string
	request share.Request
	grant   chan *control.Grant
	reasons chan waitReason // the latest reason, if its sender has not seen it yet

	reason  *control.Refusal // why the last attempt failed; guarded by the granter's operation lock, as is onlyMPS
	onlyMPS bool             // the share fits, but MPS does not serve the device yet
}

// waitReason is why a request waits. Usually, MPS is ready soon.
type waitReason struct {
	*control.Refusal
	onlyMPS bool
}

func newWaiter(p process.Process, name string, request share.Request) *waiter {
	return &waiter{
		id: strings.ToLower(rand.Text()[:8]), process: p, name: name, request: request, grant: make(chan *control.Grant, 1),
		reasons: make(chan waitReason, 1),
	}
}

// setReason sets why the request waits now. The caller holds the granter's operation lock.
func (w *waiter) setReason(why *control.Refusal) {
	w.reason = why
	select {
	case <-w.reasons: // outdated
	default:
	}
	w.reasons <- waitReason{why, w.onlyMPS}
}

// mpsPatience is how long a request waits for MPS alone before its sender is told. A daemon usually starts within a fraction of that.
const mpsPatience = time.Second

// await returns the grant of the request or its refusal, or neither if ctx ends first. It calls tell with the reason for which the request
// waits, and again whenever that changes.
func (w *waiter) await(ctx context.Context, tell func(*control.Refusal)) (*control.Grant, *control.Refusal) {
	var told string
	var forMPS *control.Refusal // not told yet
	var patience <-chan time.Time
	for {
		select {
		case grant := <-w.grant:
			if grant == nil {
				return nil, refusalOf(errNotSetUp)
			}
			return grant, nil
		case <-ctx.Done():
			return nil, nil
		case why := <-w.reasons:
			if why.onlyMPS {
				if forMPS == nil {
					patience = time.After(mpsPatience)
				}
				forMPS = why.Refusal
				continue
			}
			forMPS, patience = nil, nil
			if why.Reason != told {
				told = why.Reason
				tell(why.Refusal)
			}
		case <-patience:
			if forMPS.Reason != told {
				told = forMPS.Reason
				tell(forMPS)
			}
			forMPS, patience = nil, nil
		}
	}
}
