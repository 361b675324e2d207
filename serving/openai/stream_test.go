package openai

import (
	"strings"
	"testing"
)

// TestStream checks after which bytes of a stream its first token has come and when it is complete, whatever the pieces in which it comes.
func TestStream(t *testing.T) {
	const (
		role  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
		token = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
		done  = "data: [DONE]\n\n"
	)
	for name, c := range map[string]struct {
		before, content string // what comes before there is content, and the event that has it
		after           string
		tokens          int
		done            bool
	}{
		"chat":                   {role, token, token + done, 2, true},
		"chat, CRLF":             {strings.ReplaceAll(role, "\n", "\r\n"), strings.ReplaceAll(token, "\n", "\r\n"), "data: [DONE]\r\n\r\n", 1, true},
		"not complete":           {role, token, token, 2, false},
		"no space":               {"", "data:{}\n\n", "data:[DONE]\n\n", 1, true},
		"completion":             {`data: {"choices":[{"text":""}]}` + "\n", `data: {"choices":[{"text":"a"}]}` + "\n", "", 1, false},
		"tool call":              {role, `data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}` + "\n", "", 1, false},
		"reasoning":              {role, `data: {"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}` + "\n", "", 1, false},
		"nulls":                  {`data: {"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[]}}]}` + "\n", token, "", 1, false},
		"an end without a token": {role, `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n", done, 1, true},
		"error":                  {role, `data: {"error":{"message":"out of memory"}}` + "\n", done, 1, true},
		"responses": {`data: {"type":"response.created"}` + "\ndata: " + `{"type":"response.in_progress"}` + "\n", `data: {"type":"response.output_text.delta","delta":"a"}` + "\n",
			`data: {"type":"response.completed"}` + "\n", 2, false},
		"no JSON":            {": ping\n\nevent: message\nid: 1\n\n\ndata:\n", "data: 0\n", "data: 1\n", 2, false},
		"a long line":        {role, "data: {" + strings.Repeat(" ", maxLine) + `"choices":[{"delta":{}}]}` + "\n", done, 1, true},
		"the end in a token": {role, `data: {"choices":[{"text":"data: [DONE]"}]}` + "\n", token, 2, false},
		"nothing":            {"data: [DONE]\n\n", "", "data: x\n\n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 3, 7, 64, maxLine, 1 << 20} {
				var s Stream
				read := func(text string) {
					for len(text) > 0 {
						n := min(piece, len(text))
						s.Read([]byte(text[:n]))
						text = text[n:]
					}
				}
				read(c.before)
				if s.Tokens != 0 {
					t.Errorf("by %d: content before the first token", piece)
				}
				read(c.content)
				if c.content != "" && s.Tokens != 1 {
					t.Errorf("by %d: %d tokens, want the first", piece, s.Tokens)
				}
				read(c.after)
				if s.Tokens != c.tokens || s.Done != c.done {
					t.Errorf("by %d: %d tokens, done %v, want %d, %v", piece, s.Tokens, s.Done, c.tokens, c.done)
				}
			}
		})
	}
}

// TestIsStream checks which answers are streams.
func TestIsStream(t *testing.T) {
	for kind, want := range map[string]bool{
		"text/event-stream": true, "text/event-stream; charset=utf-8": true, "Text/Event-Stream": true, "application/json": false, "": false, ";": false,
	} {
		if IsStream(kind) != want {
			t.Errorf("%q: %v", kind, !want)
		}
	}
}
