package share_test

import (
	"math"
	"testing"

	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestBounds checks that shares and requests are valid up to their bounds.
func TestBounds(t *testing.T) {
	good := func() share.Share {
		return share.Share{SMRequest: 200, SMLimit: 200, QuotaRequest: 300, QuotaLimit: 400, Memory: share.MiB}
	}
	bounds.Check(t, good, func(s *share.Share) error { return s.Validate() },
		bounds.Of(share.FieldSM, 1, 1000, func(s *share.Share, n int64) { s.SMRequest, s.SMLimit = share.PerMille(n), share.PerMille(n) }),
		bounds.Of(share.FieldQuota, 1, 1000, func(s *share.Share, n int64) { s.QuotaRequest, s.QuotaLimit = share.PerMille(n), share.PerMille(n) }),
		bounds.Of(share.FieldMemory, 1, 1<<50, func(s *share.Share, n int64) { s.Memory = share.Bytes(n) }),
		bounds.Of(share.FieldSMLimit, 200, 200, func(s *share.Share, n int64) { s.SMLimit = share.PerMille(n) }),
		bounds.Of(share.FieldSMLimit, 200, 1000, func(s *share.Share, n int64) {
			s.SMLimit, s.QuotaRequest, s.QuotaLimit = share.PerMille(n), share.Whole, share.Whole
		}),
		bounds.Of(share.FieldQuotaLimit, 300, 1000, func(s *share.Share, n int64) { s.QuotaLimit = share.PerMille(n) }),
	)
	request := func() share.Request {
		whole := share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 1000, QuotaLimit: 1000, Memory: share.MiB}
		return share.Request{
			Terms:      share.Terms{Priority: share.BestEffort, Slice: share.WholeGPU, Enforcement: share.Strict},
			Containers: []share.Container{{Name: "a", VGPUs: 1, Share: whole}, {Name: "b", VGPUs: 1, Share: whole}},
		}
	}
	bounds.Check(t, request, func(r *share.Request) error { return r.Validate() },
		bounds.Of(share.FieldVGPU, math.MinInt64, 63, func(r *share.Request, n int64) { r.Containers[0].VGPUs = int(max(n, 1)) }))
	container := func() share.Container { return request().Containers[0] }
	bounds.Check(t, container, func(c *share.Container) error { return c.Validate() },
		bounds.Of(share.FieldVGPU, 1, 64, func(c *share.Container, n int64) { c.VGPUs = int(n) }),
		bounds.Of(share.FieldQuota, 1000, 1000, func(c *share.Container, n int64) { c.VGPUs, c.Share.QuotaRequest = 2, share.PerMille(n) }))
}
