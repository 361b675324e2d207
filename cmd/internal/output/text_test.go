package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"
)

// hostile is text that would clear the screen, set the window's title and forge a line, and that hides what follows.
const hostile = "a\x1b[2J\x1b]0;title\a\r\nok\u009b2J\t\u202eb\x7f\U000e0001\xff"

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"GPU 50 %, 名, é, “x” │": "GPU 50 %, 名, é, “x” │",
		hostile:                 "a?[2J?]0;title?  ok?2J ?b??\ufffd",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got, want := Text("error: a\n\tb\x1b[2J\r"), "error: a\n\tb?[2J?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type word string

func (w word) String() string { return "<" + string(w) + ">" }

func TestFprintf(t *testing.T) {
	var b bytes.Buffer
	if _, err := Fprintf(&b, "%s\t%v %s %d %5.1f\n", "a\nb", errors.New("c\x1b"), word("d\t"), 7, 1.5); err != nil {
		t.Fatal(err)
	}
	if _, err := Fprintln(&b, "*", "e\n", 8); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "a b\tc? <d > 7   1.5\n* e  8\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWrite: JSON and YAML keep every text, and have nothing that a terminal would obey.
func TestWrite(t *testing.T) {
	value := map[string]string{"text": strings.ToValidUTF8(hostile, "")}
	for _, name := range []string{"json", "yaml"} {
		var b bytes.Buffer
		if err := (&Format{name}).Write(&b, value, func(io.Writer) error { return errors.New("a table") }); err != nil {
			t.Fatal(err)
		}
		if at := strings.IndexFunc(b.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); at >= 0 {
			t.Errorf("%s has a control character at %d: %q", name, at, b.String())
		}
		var got map[string]string
		if name == "json" && (json.Unmarshal(b.Bytes(), &got) != nil || got["text"] != value["text"]) {
			t.Errorf("got %q, want %q", got, value)
		}
	}
}
