package tokenserver

import (
	"errors"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrElastic is returned by Narrow for a share of class elastic, which is given part of the SMs instead of part of the time.
var ErrElastic = errors.New("the quota of a share of class elastic cannot change")

// Narrow gives a container a smaller part of each window than its share specifies, while its processes run: quota becomes both the request
// and the limit. If quota is the share's own request, the share's own request and limit apply again. What other containers may have does not
// change. Narrow returns a *share.FieldError if quota is not between 1 and the share's request. If the slot table has no room for what is to
// be given back, it changes nothing and returns an error that wraps token.ErrDoesNotFit.
func (c *Container) Narrow(quota share.PerMille) error {
	for i, v := range c.vgpus {
		switch own := c.VGPUs[i]; {
		case own.Elastic:
			return ErrElastic
		case quota < 1 || quota > own.QuotaRequest:
			return share.Invalid("quota", "%v is not between 0.1%% and the %v of the share", quota.Percent(), own.QuotaRequest.Percent())
		case quota == own.QuotaRequest:
			if err := v.Slice.narrow(v, own.QuotaRequest, own.QuotaLimit); err != nil {
				return err
			}
		default:
			if err := v.Slice.narrow(v, quota, quota); err != nil {
				return err
			}
		}
	}
	return c.writePolicy(c.isIdleOnly(), c.limited())
}

// narrow sets a vGPU's request and limit for its part of the window.
func (s *Slice) narrow(v *vgpu, request, limit share.PerMille) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldRequest, oldLimit := v.QuotaRequest, v.QuotaLimit
	if oldRequest == request && oldLimit == limit {
		return nil
	}
	v.QuotaRequest, v.QuotaLimit = request, limit // only these two: the other fields of the share are read without the lock
	if err := s.policy.reshape(v, v.idle, s.server.Clock.Now()); err != nil {
		v.QuotaRequest, v.QuotaLimit = oldRequest, oldLimit
		return err
	}
	v.writeGuarantee()
	s.step()
	return nil
}

// quotaNow returns the part of the window that a vGPU is guaranteed now.
func (v *vgpu) quotaNow() share.PerMille {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	return v.QuotaRequest
}
