// Package share holds the quantities of GPU sharing: what one vGPU requests of a slice, in integers whose units are types.
package share

import "fmt"

// PerMille is a fraction, in thousandths, of a slice's SMs or of a time window.
type PerMille int32

// Whole is the fraction for all SMs of a slice, or for the whole of every window.
const Whole PerMille = 1000

// Bytes is an amount of device memory.
type Bytes int64

// MiB is the unit in which users state device memory.
const MiB Bytes = 1 << 20

// Area is an amount of SM-time: SM per-mille times quota per-mille. FaST-GShare calls it second-cores (FG-111).
type Area int64

// WholeArea is the SM-time of one whole slice: all SMs for the whole of every window.
const WholeArea Area = Area(Whole) * Area(Whole)

// Share is what one vGPU requests of one slice.
//
// The requests are guaranteed. A limit above its request may be used while other shares leave it idle. FaST-GShare has shares with
// SMRequest = SMLimit, Dilu shares with QuotaRequest = QuotaLimit = 1000.
type Share struct {
	SMRequest    PerMille
	SMLimit      PerMille
	QuotaRequest PerMille
	QuotaLimit   PerMille
	Memory       Bytes
}

// RequestArea returns the share's guaranteed SM-time.
func (s Share) RequestArea() Area { return area(s.SMRequest, s.QuotaRequest) }

// LimitArea returns the share's SM-time at its limits. γ bounds the sum of these over a slice.
func (s Share) LimitArea() Area { return area(s.SMLimit, s.QuotaLimit) }

// IsWhole reports whether the share requests all SMs of a slice for all of the time.
func (s Share) IsWhole() bool { return s.SMRequest == Whole && s.QuotaRequest == Whole }

func area(sm, quota PerMille) Area { return Area(sm) * Area(quota) }

// String returns the share in percent and MiB, for events and logs: "24% SM x 40% time, 8192 MiB".
func (s Share) String() string {
	return fmt.Sprintf("%s SM x %s time, %d MiB", formatRange(s.SMRequest, s.SMLimit), formatRange(s.QuotaRequest, s.QuotaLimit), s.Memory/MiB)
}

func formatRange(request, limit PerMille) string {
	if request == limit {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// Percent formats the fraction in percent, with one decimal only if it is needed: "40%", "12.5%".
func (p PerMille) Percent() string {
	if p%10 == 0 {
		return fmt.Sprintf("%d%%", p/10)
	}
	return fmt.Sprintf("%d.%d%%", p/10, p%10)
}
