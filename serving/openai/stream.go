// Package openai reads the streams that OpenAI's API answers with, without holding them back: when the first token comes, how many events there are,
// and when a stream is complete.
package openai

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"
)

// IsStream reports whether an answer with this Content-Type is a stream of events.
func IsStream(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "text/event-stream"
}

// Stream follows an answer of server-sent events. The zero value is one of which nothing has come.
type Stream struct {
	// Tokens counts the events from the first with content on, but for that which ends the stream: models send about one for each token.
	Tokens int
	// Done tells that the stream is complete: the event [DONE] has come, after which clients leave.
	Done bool

	line []byte // what has come of the line in progress, at most maxLine bytes
	long bool   // the line in progress has more
}

// maxLine is how much of a line is looked at. Longer ones have content.
const maxLine = 16 << 10

// Read takes up the next bytes of the stream.
func (s *Stream) Read(b []byte) {
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		b = rest
		if len(s.line) == 0 && ended && len(line) <= maxLine { // the usual case, without a copy
			s.end(line)
			continue
		}
		kept := min(len(line), maxLine-len(s.line))
		s.line, s.long = append(s.line, line[:kept]...), s.long || kept < len(line)
		if ended {
			s.end(s.line)
			s.line, s.long = s.line[:0], false
		}
	}
}

// end takes up a whole line.
func (s *Stream) end(line []byte) {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || s.Done {
		return
	}
	if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
		s.Done = true
		return
	}
	if s.Tokens > 0 || s.long || hasContent(data) { // only looked into until there is content
		s.Tokens++
	}
}

// event has the fields of events of all of OpenAI's streams by which one without content is known.
type event struct {
	Type    string `json:"type"` // of the Responses API
	Choices []struct {
		Text         string                     `json:"text"`
		Delta        map[string]json.RawMessage `json:"delta"`
		FinishReason *string                    `json:"finish_reason"`
	} `json:"choices"`
}

// hasContent reports whether an event brings something that its client waits for. Only what is known to announce content has none, such as the role of
// a message; an error has.
func hasContent(data []byte) bool {
	var e event
	if len(data) == 0 {
		return false
	}
	if json.Unmarshal(data, &e) != nil {
		return true
	}
	switch strings.TrimPrefix(e.Type, "response.") {
	case "created", "queued", "in_progress", "output_item.added", "content_part.added", "reasoning_summary_part.added":
		return false
	}
	for _, c := range e.Choices {
		if c.Text != "" || c.FinishReason != nil {
			return true
		}
		for name, value := range c.Delta {
			if text := string(value); name != "role" && text != "null" && text != `""` && text != "[]" {
				return true
			}
		}
	}
	return len(e.Choices) == 0
}
