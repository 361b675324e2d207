package server

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// defaultTokens is the length of an answer in tokens if the request does not set it.
const defaultTokens = 16

// maxTokens is the largest length of an answer, in tokens.
const maxTokens = 1 << 16

type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	MaxTokens           int  `json:"max_tokens"`
	MaxCompletionTokens int  `json:"max_completion_tokens"`
	Stream              bool `json:"stream"`

	StreamOptions streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// prompt returns the concatenated text of all messages. Content that is not a string is taken as its JSON.
func (r *chatRequest) prompt() []byte {
	var all []byte
	for _, m := range r.Messages {
		var text string
		if json.Unmarshal(m.Content, &text) != nil {
			text = string(m.Content)
		}
		all = append(all, text...)
	}
	return all
}

type chatMessage struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitempty"`
	Delta        *chatMessage `json:"delta,omitempty"`
	FinishReason *string      `json:"finish_reason"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// add counts the tokens of a prompt, one for each of its words, and the tokens of its answer.
func (u *usage) add(prompt string, tokens int) {
	u.Prompt += len(strings.Fields(prompt))
	u.Completion += tokens
	u.Total = u.Prompt + u.Completion
}

type chatResponse struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

// handleOpenAI registers the handlers of OpenAI's API.
func (s *Server) handleOpenAI(handle handlers) {
	handle("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) error {
		one := map[string]any{"id": s.Engine.Table.Name, "object": "model", "created": 0, "owned_by": "gshare"}
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{one}})
		return nil
	})
	handle("POST /v1/chat/completions", s.chat)
	handle("POST /v1/completions", s.complete)
	handle("POST /v1/embeddings", s.embed)
}

// knownIfNamed returns an error if a request names a model that is not this server's. It may name none.
func (s *Server) knownIfNamed(name string) error {
	if name == "" {
		return nil
	}
	return s.known(name, "")
}

// writeOpenAIError writes an error in the format that OpenAI's clients expect.
func writeOpenAIError(w http.ResponseWriter, err error) {
	content := map[string]any{"message": err.Error(), "type": "invalid_request_error", "param": nil, "code": nil}
	if statusOf(err) >= http.StatusInternalServerError {
		content["type"] = "server_error"
	}
	writeJSON(w, statusOf(err), map[string]any{"error": content})
}

// chat answers a prompt with tokens. It sends all of them at once or, with stream, each as soon as it is generated.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	var request chatRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	if err := s.knownIfNamed(request.Model); err != nil {
		return err
	}
	tokens := max(request.MaxTokens, request.MaxCompletionTokens)
	if tokens <= 0 {
		tokens = defaultTokens
	}
	if len(request.Messages) == 0 || tokens > maxTokens {
		return errorf(http.StatusBadRequest, "a request has messages and asks for at most %d tokens", maxTokens)
	}
	prompt := request.prompt()
	response := chatResponse{
		ID: fmt.Sprintf("chatcmpl-%d", time.Now().UnixNano()), Object: "chat.completion", Created: time.Now().Unix(), Model: s.Engine.Table.Name,
	}
	count := &usage{}
	count.add(string(prompt), tokens)
	if request.Stream {
		response.Object = "chat.completion.chunk"
		if !request.StreamOptions.IncludeUsage {
			count = nil
		}
		return s.stream(r.Context(), w, response, prompt, tokens, count)
	}
	var text strings.Builder
	if err := s.generate(r.Context(), prompt, tokens, func(token string) error {
		text.WriteString(token + " ")
		return nil
	}); err != nil {
		return err
	}
	length := "length"
	response.Usage = count
	response.Choices = []chatChoice{{Message: &chatMessage{"assistant", text.String()}, FinishReason: &length}}
	writeJSON(w, http.StatusOK, response)
	return nil
}

// generate generates an answer and counts its tokens in the metrics.
func (s *Server) generate(ctx context.Context, prompt []byte, tokens int, emit func(string) error) error {
	if err := s.checkAlive(); err != nil {
		return err
	}
	return s.Engine.Generate(ctx, prompt, tokens, func(token string) error {
		s.metrics.tokens.Inc()
		return emit(token)
	})
}

// events sends server-sent events to a client. An error before the header is an ordinary answer. A later one breaks the connection, so that the client
// cannot mistake the text for complete.
type events struct {
	w     http.ResponseWriter
	begun bool
}

// events returns the events of an answer to a client. The header is sent when the request is accepted, long before the first token, as vLLM does. While
// the model is not loaded, or the engine is dead, it waits for the first event.
func (s *Server) events(w http.ResponseWriter) *events {
	e := &events{w: w}
	if s.Engine.Loaded() && s.checkAlive() == nil {
		e.begin()
		_ = http.NewResponseController(w).Flush() // if it fails, so does the first event
	}
	return e
}

func (e *events) begin() {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
		e.w.WriteHeader(http.StatusOK)
	}
}

func (e *events) send(content any) error {
	e.begin()
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.w, "data: %s\n\n", text); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// end ends the answer, with an error if err is not nil.
func (e *events) end(err error) error {
	if err == nil {
		_, err = fmt.Fprint(e.w, "data: [DONE]\n\n")
	}
	if err != nil && e.begun {
		panic(http.ErrAbortHandler)
	}
	return err
}

// stream sends each token as an event when it is generated.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, response chatResponse, prompt []byte, tokens int, count *usage) error {
	events := s.events(w)
	send := func(choices ...chatChoice) error {
		response.Choices = choices
		return events.send(response)
	}
	role := "assistant" // in the event of the first token only
	err := s.generate(ctx, prompt, tokens, func(token string) error {
		err := send(chatChoice{Delta: &chatMessage{role, token + " "}})
		role = ""
		return err
	})
	if err == nil {
		length := "length"
		err = send(chatChoice{Delta: &chatMessage{}, FinishReason: &length})
	}
	if err == nil && count != nil {
		response.Usage = count
		err = send([]chatChoice{}...)
	}
	return events.end(err)
}

// texts is a JSON value that is a text or a list of texts. Arrays of token numbers are taken as the text of their JSON.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(from []byte) error {
	var one string
	if json.Unmarshal(from, &one) == nil {
		*t = texts{one}
		return nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(from, &all); err != nil {
		return err
	}
	if len(all) > 0 && all[0][0] != '"' && all[0][0] != '[' {
		*t = texts{string(from)} // an array of token numbers, taken as one text
		return nil
	}
	*t = nil
	for _, each := range all {
		var one string
		if json.Unmarshal(each, &one) != nil {
			one = string(each)
		}
		*t = append(*t, one)
	}
	return nil
}

type completionRequest struct {
	Model         string        `json:"model"`
	Prompt        texts         `json:"prompt"`
	MaxTokens     int           `json:"max_tokens"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
}

type completionChoice struct {
	Index        int     `json:"index"`
	Text         string  `json:"text"`
	Logprobs     *string `json:"logprobs"` // always null
	FinishReason *string `json:"finish_reason"`
}

type completionResponse struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

// complete answers each prompt with tokens. It sends all of them at once or, for a single prompt with stream, each as soon as it is generated.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) error {
	var request completionRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	if err := s.knownIfNamed(request.Model); err != nil {
		return err
	}
	tokens := request.MaxTokens
	if tokens <= 0 {
		tokens = defaultTokens
	}
	if most := s.Engine.Table.MaxBatch(); len(request.Prompt) == 0 || len(request.Prompt) > most || tokens > maxTokens {
		return errorf(http.StatusBadRequest, "a request has 1 to %d prompts and asks for at most %d tokens", most, maxTokens)
	}
	response := completionResponse{
		ID: fmt.Sprintf("cmpl-%d", time.Now().UnixNano()), Object: "text_completion", Created: time.Now().Unix(), Model: s.Engine.Table.Name,
	}
	count := &usage{}
	for _, prompt := range request.Prompt {
		count.add(prompt, tokens)
	}
	length := "length"
	if request.Stream {
		if len(request.Prompt) > 1 {
			return errorf(http.StatusBadRequest, "a streamed answer has one prompt")
		}
		events := s.events(w)
		send := func(choices ...completionChoice) error {
			response.Choices = choices
			return events.send(response)
		}
		err := s.generate(r.Context(), []byte(request.Prompt[0]), tokens, func(token string) error { return send(completionChoice{Text: token + " "}) })
		if err == nil {
			err = send(completionChoice{FinishReason: &length})
		}
		if err == nil && request.StreamOptions.IncludeUsage {
			response.Usage = count
			err = send([]completionChoice{}...)
		}
		return events.end(err)
	}
	response.Usage = count
	for i, prompt := range request.Prompt {
		var text strings.Builder
		if err := s.generate(r.Context(), []byte(prompt), tokens, func(token string) error {
			text.WriteString(token + " ")
			return nil
		}); err != nil {
			return err
		}
		response.Choices = append(response.Choices, completionChoice{Index: i, Text: text.String(), FinishReason: &length})
	}
	writeJSON(w, http.StatusOK, response)
	return nil
}

type embeddingRequest struct {
	Model          string `json:"model"`
	Input          texts  `json:"input"`
	EncodingFormat string `json:"encoding_format"` // float (default) or base64
}

// embedding is the vector of an input: a list of numbers, or the base64 of float32 values, little endian.
type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// embed runs all inputs as one batch and answers each with a vector: the bytes of its checksum, the lowest first, divided by 256.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) error {
	var request embeddingRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	if err := s.knownIfNamed(request.Model); err != nil {
		return err
	}
	switch request.EncodingFormat {
	case "", "float", "base64":
	default:
		return errorf(http.StatusBadRequest, "encoding_format %q is neither float nor base64", request.EncodingFormat)
	}
	if len(request.Input) == 0 {
		return errorf(http.StatusBadRequest, "a request has an input")
	}
	count := &usage{}
	var rows [][]byte
	for _, input := range request.Input {
		count.add(input, 0)
		rows = append(rows, []byte(input))
	}
	sums, err := s.run(r.Context(), rows)
	if err != nil {
		return err
	}
	all := []embedding{}
	for i, sum := range sums {
		var vector []float32
		for _, b := range binary.LittleEndian.AppendUint32(nil, sum) {
			vector = append(vector, float32(b)/256)
		}
		e := embedding{Object: "embedding", Index: i, Embedding: vector}
		if request.EncodingFormat == "base64" {
			data, _ := binary.Append(nil, binary.LittleEndian, vector) // never fails for numbers
			e.Embedding = base64.StdEncoding.EncodeToString(data)
		}
		all = append(all, e)
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "model": s.Engine.Table.Name, "data": all,
		"usage": map[string]int{"prompt_tokens": count.Prompt, "total_tokens": count.Total}})
	return nil
}
