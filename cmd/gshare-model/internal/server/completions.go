package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

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
