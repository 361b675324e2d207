package store

import (
	"maps"
	"math"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Limit sets which weights the store may have from now on, and how much device memory each of them may take in all layouts together, less what
// is held of it: copies of an earlier store that programs still have. Others are refused. What the store has already stays until Trim.
func (s *Store) Limit(limits, held map[Digest]share.Bytes) {
	s.limits, s.held, s.capacity = maps.Clone(limits), maps.Clone(held), 0
	if limits == nil {
		s.limits = map[Digest]share.Bytes{}
	}
	for d, bytes := range limits {
		s.capacity += min(max(0, bytes-held[d]), math.MaxInt64-s.capacity)
	}
}

// Trim drops the committed entries without users of weights that exceed their limit, those first that have been unused longest, and returns
// them. It drops nothing of a store without limits.
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

// checkLimit returns ErrSize if so much more memory of weights exceeds their limit, and ErrFull if it will not once what is held has ended.
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

// usedBy returns the device memory of weights in all layouts.
func (s *Store) usedBy(d Digest) (sum share.Bytes) {
	for k, e := range s.entries {
		if k.Digest == d {
			sum += e.Size
		}
	}
	return sum
}
