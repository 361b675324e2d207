package output

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text that others have written, such as the message of an event or an annotation of a pod, as part of a line on a terminal. White
// space becomes blanks, so that it cannot begin a line or a column of its own, and what a terminal would obey, such as escape sequences, becomes
// question marks.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, text)
}

// Text returns text of several lines, of which others may have written parts, for a terminal: as Line does, but with line breaks and tabs.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Fprintf is fmt.Fprintf with all texts and errors among the arguments as Line returns them. The format is the program's own.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	for i := range args {
		args[i] = plain(args[i])
	}
	return fmt.Fprintf(w, format, args...)
}

// Fprintln is fmt.Fprintln with all texts and errors among the arguments as Line returns them.
func Fprintln(w io.Writer, args ...any) (int, error) {
	for i := range args {
		args[i] = plain(args[i])
	}
	return fmt.Fprintln(w, args...)
}

// plain returns an argument as Line has it if it is a text or an error.
func plain(arg any) any {
	switch a := arg.(type) {
	case string:
		return Line(a)
	case error:
		return Line(a.Error())
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
		return Line(fmt.Sprint(arg))
	}
	return arg
}

// escaped returns JSON in which what a terminal would obey is escaped. encoding/json leaves control characters above ASCII as they are, some of
// which begin escape sequences. A terminal obeys no character above U+FFFF, which YAML cannot read as a pair of escapes.
func escaped(text []byte) (out []byte) {
	for _, r := range string(text) {
		if r == '\n' || r > 0xffff || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
