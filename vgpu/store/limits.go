package store

import (
	"maps"
	"math"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Limit sets which weights the store may have from now on: for each digest, how much device memory all its layouts together may take. Put
// refuses all other weights. What is held of a digest is deducted from its limit: copies from an earlier store that programs still have.
// What the store has already stays until Trim.
func (s *Store) Limit(limits, held map[Digest]share.Bytes) {
	s.limits, s.held, s.capacity = maps.Clone(limits), maps.Clone(held), 0
	if limits == nil {
		s.limits = map[Digest]share.Bytes{}
	}
	for d, bytes := range limits {
		s.capacity += min(max(0, bytes-held[d]), math.MaxInt64-s.capacity)
	}
}

// Trim drops committed entries without users whose weights exceed their limit, least recently used first, and returns them. It drops
// nothing from a store without limits.
func (s *Store) Trim() (dropped []Entry) {
	if s.limits == nil {
		return nil
	}
	for _, e := range s.sorted((*entry).evictable) {
		if s.usedBy(e.Key.Digest) > s.limits[e.Key.Digest]-s.held[e.Key.Digest] {
			s.drop(e)
			dropped = append(dropped, e.view())
		}
	}
	return dropped
}

// checkLimit returns ErrSize if that much more memory would exceed the limit of the weights, and ErrFull if it would do so only as long as
// the held memory is in use.
func (s *Store) checkLimit(d Digest, size share.Bytes) error {
	left := s.limits[d] - s.usedBy(d)
	switch {
	case s.limits == nil:
		return nil
	case size > left:
		return ErrSize
	case size > left-s.held[d]:
		return ErrFull
	}
	return nil
}

// usedBy returns the device memory that weights take in all their layouts.
func (s *Store) usedBy(d Digest) (sum share.Bytes) {
	for k, e := range s.entries {
		if k.Digest == d {
			sum += e.Size
		}
	}
	return sum
}
