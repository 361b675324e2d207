package oip

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads JSON from left to right. After the first error it stands at the end and every method returns a zero value, so that callers need to
// check err only once.
type scanner struct {
	text []byte
	at   int
	path []step // where in the message the scanner is
	err  *Error
}

func newScanner(text []byte) *scanner {
	return &scanner{text: text, path: make([]step, 0, 8)}
}

// step is a member of an object or an element of an array.
type step struct {
	name  []byte
	index int // index of an element, whose name is nil; its array is the step before
}

func (s *scanner) enter(name []byte)        { s.path = append(s.path, step{name: name}) }
func (s *scanner) enterIndex(index int)     { s.path = append(s.path, step{index: index}) }
func (s *scanner) leave()                   { s.path = s.path[:len(s.path)-1] }
func (s *scanner) failed() bool             { return s.err != nil }
func (s *scanner) failIn(name, what string) { s.enter([]byte(name)); s.fail(what); s.leave() }
func (s *scanner) syntax(want string) {
	s.fail("is not JSON: want " + want + " at byte " + strconv.Itoa(s.at))
}
func (s *scanner) missing(name string) { s.failIn(name, "is missing") }
func (s *scanner) tooMany(what string, n int) {
	s.fail("has more than " + strconv.Itoa(n) + " " + what)
}

// fail records a problem with the field at which the scanner is, unless there was one before.
func (s *scanner) fail(problem string) {
	if s.err == nil {
		s.err = s.problem(problem)
		s.at = len(s.text)
	}
}

// problem returns an error about the field at which the scanner is.
func (s *scanner) problem(problem string) *Error {
	var field strings.Builder
	for i, step := range s.path {
		switch {
		case step.name == nil:
			field.WriteString("[" + strconv.Itoa(step.index) + "]")
		case i > 0:
			field.WriteString("." + clip(step.name))
		default:
			field.WriteString(clip(step.name))
		}
	}
	return &Error{field.String(), problem}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c > ' ' || !isSpace(c) {
			return c
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// accept skips white space and then c, and reports whether it was there.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) expect(c byte) {
	if !s.accept(c) {
		s.syntax(strconv.QuoteRune(rune(c)))
	}
}

// end checks that nothing but white space is left.
func (s *scanner) end() {
	if s.peek(); s.at < len(s.text) {
		s.syntax("the end")
	}
}

// members reads an object. It calls read for each member, with the scanner before the value, which read has to consume. A key must not occur twice.
func (s *scanner) members(read func(key, raw []byte)) {
	if s.peek() != '{' {
		s.fail("is not an object")
		return
	}
	s.at++
	if s.accept('}') {
		return
	}
	var few [8][]byte
	seen := few[:0]
	for !s.failed() {
		raw := s.stringToken()
		key := unquote(raw)
		for _, other := range seen {
			if bytes.Equal(other, key) {
				s.failIn(string(key), "is given twice")
			}
		}
		if seen = append(seen, key); len(seen) > maxMembers {
			s.tooMany("members", maxMembers)
		}
		s.expect(':')
		if s.failed() {
			return
		}
		s.enter(key)
		read(key, raw)
		s.leave()
		if !s.accept(',') {
			s.expect('}')
			return
		}
	}
}

// clip shortens a name for use in an error.
func clip(name []byte) string {
	const most = 64
	if len(name) > most {
		return strings.ToValidUTF8(string(name[:most]), "") + "..."
	}
	return string(name)
}

// elements reads an array of at most most elements. It calls read for each, with the scanner before the value.
func (s *scanner) elements(most int, read func(index int)) {
	if s.peek() != '[' {
		s.fail("is not an array")
		return
	}
	s.at++
	if s.accept(']') {
		return
	}
	for index := 0; !s.failed(); index++ {
		if index == most {
			s.tooMany("elements", most)
			return
		}
		s.enterIndex(index)
		read(index)
		s.leave()
		if !s.accept(',') {
			s.expect(']')
			return
		}
	}
}

// value skips any value and returns its bytes.
func (s *scanner) value() []byte {
	s.peek()
	start := s.at
	s.skip(0)
	if s.failed() {
		return nil
	}
	return s.text[start:s.at]
}

func (s *scanner) skip(depth int) {
	if depth > maxDepth {
		s.fail("is nested deeper than " + strconv.Itoa(maxDepth))
		return
	}
	switch c := s.peek(); c {
	case '{':
		s.at++
		if s.accept('}') {
			return
		}
		for !s.failed() {
			s.stringToken()
			s.expect(':')
			s.skip(depth + 1)
			if !s.accept(',') {
				s.expect('}')
				return
			}
		}
	case '[':
		s.at++
		if s.accept(']') {
			return
		}
		for !s.failed() {
			s.skip(depth + 1)
			if !s.accept(',') {
				s.expect(']')
				return
			}
		}
	default:
		s.scalar(c, &numbers{})
	}
}

// stringToken reads a string and returns its bytes with the quotation marks. Its text is valid UTF-8, once unescaped too.
func (s *scanner) stringToken() []byte {
	if s.peek() != '"' {
		s.syntax("a string")
		return nil
	}
	start, ascii := s.at, true
	for i := start + 1; i < len(s.text); {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			if token := s.text[start:s.at]; ascii || utf8.Valid(token) {
				return token
			}
			s.fail("is not UTF-8")
			return nil
		case c == '\\':
			n := escape(s.text[i:])
			if n == 0 {
				s.at = i
				s.syntax("an escape of JSON")
				return nil
			}
			i += n
		case c < ' ':
			s.at = i
			s.syntax("no control character in a string")
			return nil
		default:
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}
	s.at = len(s.text)
	s.syntax("the end of a string")
	return nil
}

// escape returns the length of the escape sequence that text begins with, 0 if it has none. Two halves of a surrogate pair are one sequence.
func escape(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	if text[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), text[1]) < 0 {
			return 0
		}
		return 2
	}
	switch high := hex4(text); {
	case high < 0, high >= 0xdc00 && high <= 0xdfff:
		return 0
	case high < 0xd800 || high > 0xdbff:
		return 6
	}
	if low := hex4(text[6:]); low >= 0xdc00 && low <= 0xdfff {
		return 12
	}
	return 0
}

// hex4 returns the number in an escape sequence \uXXXX at the beginning of text, -1 if there is none.
func hex4(text []byte) int {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}

// unquote returns the text of a string token. It allocates only for escape sequences.
func unquote(token []byte) []byte {
	if len(token) < 2 {
		return nil
	}
	if bytes.IndexByte(token, '\\') < 0 {
		return token[1 : len(token)-1]
	}
	var text string
	if json.Unmarshal(token, &text) != nil {
		return nil // the scanner has checked it
	}
	return []byte(text)
}

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
