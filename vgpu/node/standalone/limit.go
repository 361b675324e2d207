package standalone

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// SetLimit changes the SM limit of an elastic run of the calling user, from the next tokens on. It returns nil on success.
func (n *Node) SetLimit(uid uint32, r control.LimitRequest) *control.Refusal {
	n.mu.Lock()
	defer n.mu.Unlock()
	run, err := n.findRun(r.Run)
	if err != nil {
		return &control.Refusal{Reason: err.Error()}
	}
	if uid != 0 && uid != run.UID {
		return &control.Refusal{Reason: fmt.Sprintf("%s is another user's", run.ID)}
	}
	if err := n.resize(run, r.SMLimit); err != nil {
		return refusalOf(err)
	}
	n.Log.Info("SM limit changed", "run", run.ID, "name", run.Name, "limit", run.SMLimit)
	return nil
}

// findRun returns the run with an ID, or the only one with that name.
func (n *Node) findRun(name string) (found *run, err error) {
	for _, r := range n.runs {
		switch {
		case r.ID == name:
			return r, nil
		case r.Name == name && found != nil:
			return nil, fmt.Errorf("%.63q is the name of more than one run, such as %s and %s; give the ID", name, found.ID, r.ID)
		case r.Name == name:
			found = r
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no run has the name or ID %.63q", name)
	}
	return found, nil
}

// resize sets a limit between the request and the MPS cap of the run's processes, which is fixed at their start.
func (n *Node) resize(r *run, percent int64) error {
	s := r.Share
	if percent < 1 || percent > 100 || share.PerMille(percent*10) < s.SMRequest || share.PerMille(percent*10) > s.SMLimit {
		return share.Invalid(share.FieldSMLimit, "%d%% is not between the request of %s and the limit of %s that the run began with",
			percent, s.SMRequest.Percent(), s.SMLimit.Percent())
	}
	limit := share.PerMille(percent * 10)
	if err := r.container.Resize(limit); errors.Is(err, tokenserver.ErrFixed) {
		return share.Invalid(share.FieldSMLimit, "%v; this one is %s", err, r.Class)
	} else if err != nil {
		return err
	}
	r.SMLimit = limit
	return n.save(r)
}
