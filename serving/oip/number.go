package oip

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// kind is a set of kinds of JSON values that are neither arrays nor objects.
type kind uint8

const (
	integers  kind = 1 << iota // without fraction and exponent
	fractions                  // other numbers
	hugeOnes                   // numbers with more than 19 digits or an exponent of three digits, which some servers refuse
	booleans
	texts
	nulls
)

// numbers is what is known about the integers among the values read.
type numbers struct {
	largest, smallest uint64 // the largest one, and the magnitude of the smallest negative one
}

// scalar reads a value that begins with c and is neither an array nor an object.
func (s *scanner) scalar(c byte, n *numbers) kind {
	switch {
	case c == '-' || c-'0' < 10:
		return s.number(n)
	case c == '"':
		s.stringToken()
		return texts
	case c == 't' && s.literal("true"), c == 'f' && s.literal("false"):
		return booleans
	case c == 'n' && s.literal("null"):
		return nulls
	}
	s.syntax("a value")
	return 0
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		return false
	}
	s.at += len(word)
	return true
}

func (s *scanner) number(n *numbers) kind {
	text, i := s.text, s.at
	negative := text[i] == '-'
	if negative {
		i++
	}
	first := i
	i = digits(text, i)
	switch length := i - first; {
	case length == 0, length > 1 && text[first] == '0':
		s.at = first
		s.syntax("a number")
		return 0
	case length > 19:
		return s.tail(i, hugeOnes)
	}
	if i == len(text) || (text[i] != '.' && text[i]|0x20 != 'e') {
		var v uint64
		for _, c := range text[first:i] {
			v = v*10 + uint64(c-'0')
		}
		if negative {
			n.smallest = max(n.smallest, v)
		} else {
			n.largest = max(n.largest, v)
		}
		s.at = i
		return integers
	}
	return s.tail(i, fractions)
}

// tail reads the fraction and the exponent of a number, which begin at i.
func (s *scanner) tail(i int, found kind) kind {
	text := s.text
	if i < len(text) && text[i] == '.' {
		first := i + 1
		if i = digits(text, first); i == first {
			s.at = i
			s.syntax("a digit")
			return 0
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		first := i + 1
		if first < len(text) && (text[first] == '+' || text[first] == '-') {
			first++
		}
		if i = digits(text, first); i == first {
			s.at = i
			s.syntax("a digit")
			return 0
		}
		if i-first > 2 {
			found = hugeOnes
		}
	}
	s.at = i
	return found
}

// digits returns the end of the digits that begin at i. It checks eight bytes at a time.
func digits(text []byte, i int) int {
	for i+8 <= len(text) {
		if other := notDigits(binary.LittleEndian.Uint64(text[i:])); other != 0 {
			return i + bits.TrailingZeros64(other)/8
		}
		i += 8
	}
	for i < len(text) && text[i]-'0' < 10 {
		i++
	}
	return i
}

// notDigits returns a number in which the highest bit of each byte is set if that byte of text is not a digit; all other bits are 0.
func notDigits(text uint64) uint64 {
	const ones = 0x0101010101010101
	v := text ^ '0'*ones // each byte is 0 to 9 for a digit
	return (v&(0x7f*ones) + 0x76*ones | v) & (0x80 * ones)
}

// unsigned reads a whole number from 0 to most.
func (s *scanner) unsigned(most uint64) uint64 {
	var n numbers
	c := s.peek()
	if c != '-' && c-'0' >= 10 {
		s.fail("is not a number")
		return 0
	}
	switch found := s.number(&n); {
	case s.failed():
	case found != integers || n.smallest > 0:
		s.fail("is not a whole number of zero or more")
	case n.largest > most:
		s.fail("is more than " + strconv.FormatUint(most, 10))
	}
	return n.largest
}
