// Package share holds the quantities of GPU sharing: what one vGPU asks of a slice, in integers whose units are types.
package share

import "fmt"

// PerMille is a thousandth part of a slice's SMs or of a time window.
type PerMille int32

// Whole is all SMs of a slice, or the whole of every window.
const Whole PerMille = 1000

// Bytes is an amount of device memory.
type Bytes int64

// MiB is the unit in which users state device memory.
const MiB Bytes = 1 << 20

// Area is SM-time: SM per-mille times quota per-mille. FaST calls it second-cores (FG-111).
type Area int64

// WholeArea is one slice for the whole of every window.
const WholeArea Area = Area(Whole) * Area(Whole)

// Share is the request of one vGPU to one slice.
//
// The requests are guaranteed. A limit above its request may be used while other shares leave it idle. FaST-GShare is the case
// SMRequest = SMLimit; Dilu is the case QuotaRequest = QuotaLimit = 1000.
type Share struct {
	SMRequest    PerMille
	SMLimit      PerMille
	QuotaRequest PerMille
	QuotaLimit   PerMille
	Memory       Bytes
}

// RequestArea returns the guaranteed SM-time.
func (s Share) RequestArea() Area { return area(s.SMRequest, s.QuotaRequest) }

// LimitArea returns the SM-time at the limits, whose sum over a slice γ bounds.
func (s Share) LimitArea() Area { return area(s.SMLimit, s.QuotaLimit) }

// IsWhole reports whether the share requests the whole slice.
func (s Share) IsWhole() bool { return s.SMRequest == Whole && s.QuotaRequest == Whole }

func area(sm, quota PerMille) Area { return Area(sm) * Area(quota) }

// String returns the share as users write it, for events and logs: "24% SM x 40% time, 8192 MiB".
func (s Share) String() string {
	return fmt.Sprintf("%s SM x %s time, %d MiB", span(s.SMRequest, s.SMLimit), span(s.QuotaRequest, s.QuotaLimit), s.Memory/MiB)
}

func span(request, limit PerMille) string {
	if request == limit {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// Percent returns the part in percent, with one decimal only if it is needed.
func (p PerMille) Percent() string {
	if p%10 == 0 {
		return fmt.Sprintf("%d%%", p/10)
	}
	return fmt.Sprintf("%d.%d%%", p/10, p%10)
}
