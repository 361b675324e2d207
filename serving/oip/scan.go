package oip

import (
	"bytes"
	"encoding/json"
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
