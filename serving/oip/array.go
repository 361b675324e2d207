package oip

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// array is a JSON array, possibly of arrays.
type array struct {
	content []byte // what is between the outer brackets
	depth   int    // depth of nesting
	sizes   [maxDimensions]int64
	count   int64 // number of values that are not arrays
	kinds   kind
	numbers numbers
}

// array reads an array. All arrays at the same depth must have the same number of elements.
func (s *scanner) array() array {
	var a array
	for i := range a.sizes {
		a.sizes[i] = -1
	}
	if s.peek() != '[' {
		s.fail("is not an array")
		return a
	}
	start := s.at + 1
	s.nested(&a, 0)
	if s.failed() {
		return a
	}
	a.content = s.text[start : s.at-1]
	return a
}

func (s *scanner) nested(a *array, level int) {
	if level == maxDimensions {
		s.fail("is nested deeper than " + strconv.Itoa(maxDimensions))
		return
	}
	s.at++ // the bracket
	var size int64
	switch c := s.peek(); c {
	case ']':
	case '[':
		for {
			s.nested(a, level+1)
			size++
			if !s.accept(',') {
				break
			}
			if s.peek() != '[' {
				s.fail("has arrays and values side by side")
			}
			if s.failed() {
				return
			}
		}
	default:
		if a.depth != 0 && a.depth != level+1 {
			s.fail("has arrays of different depth")
			return
		}
		size = s.scalars(a, c)
		a.count += size
	}
	s.expect(']')
	a.depth = max(a.depth, level+1)
	switch {
	case a.sizes[level] < 0:
		a.sizes[level] = size
	case a.sizes[level] != size:
		s.fail("has arrays of different length at depth " + strconv.Itoa(level+1))
	}
}

// scalars reads values up to the end of their array and returns how many there are. The first one begins with c.
func (s *scanner) scalars(a *array, c byte) int64 {
	for size := int64(1); ; size++ {
		if c == '[' {
			s.fail("has arrays and values side by side")
			return 0
		}
		if n, next := s.decimals(); n > 0 {
			a.kinds |= fractions
			size += n
			s.at = next
			c = s.peek()
		}
		a.kinds |= s.scalar(c, &a.numbers)
		if !s.accept(',') {
			return size
		}
		c = s.peek()
	}
}

// decimals is a fast path for numbers like 0.25 or -1.5 that are followed by a comma, without white space. It returns how many such numbers come next
// in the text, and where they end.
func (s *scanner) decimals() (n int64, next int) {
	for next = s.at; len(s.text)-next >= 32; n++ {
		window := s.text[next : next+32]
		i := 0
		if window[0] == '-' {
			i = 1
		}
		if window[i]-'0' >= 10 || window[i+1] != '.' {
			break
		}
		i += 2
		first := i
		other := notDigits(binary.LittleEndian.Uint64(window[i:]))
		for other == 0 && i < 16 {
			i += 8
			other = notDigits(binary.LittleEndian.Uint64(window[i:]))
		}
		if i += bits.TrailingZeros64(other) / 8; i == first || window[i] != ',' {
			break
		}
		next += i + 1
	}
	return n, next
}
