package residency

import "github.com/gshare-dev/gshare/vgpu/share"

// Holder is what an instance on a slice of class swap is recorded with.
type Holder struct {
	Level  Level
	Memory share.Bytes // of its share
	Kept   share.Bytes // of the slice, if it is Warm
}

// holds returns the memory of the slice that the instance may allocate.
func (h Holder) holds() share.Bytes {
	return h.Level.Charge(share.Share{Memory: h.Memory}, h.Kept).Memory
}

// Held returns the memory of a slice that instances may allocate together.
func Held(all []Holder) (sum share.Bytes) {
	for _, h := range all {
		sum += h.holds()
	}
	return sum
}

// FitsTurn reports whether an instance of class swap may hold its memory of a slice, as it has its turn or starts: no other one may hold more than it
// keeps when it is parked, and all that is kept leaves room.
func FitsTurn(slice, memory share.Bytes, others []Holder) bool {
	for _, h := range others {
		if h.Level != Warm {
			return false
		}
	}
	return memory <= slice-Held(others)
}
