package gateway

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// zipped returns a text as it is sent with Content-Encoding: gzip.
func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

// formOf returns the body of a form with the boundary b. Fields are pairs of what follows name= in the header of a part, and its content.
func formOf(fields ...string) string {
	var b strings.Builder
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n%s\r\n", fields[i], fields[i+1])
	}
	return b.String() + "--b--\r\n"
}

// TestModelInForms checks that an upload, or a compressed body, is routed by its model, reaches the replica as it came, and is refused with the cause in
// the text if it names none.
func TestModelInForms(t *testing.T) {
	const form, file = "multipart/form-data; boundary=b", `"file"; filename="x"`
	sound := strings.Repeat("\r\n--c\x00", 100_000)
	chat := `{"model":"resnet","messages":[]}`
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		w.replicas(echo(0), 4, 0, "a")
		for name, c := range map[string]struct {
			kind, encoding, body string
			status               int
			text                 string // in the answer
		}{
			"form":                     {form, "", formOf(`"model"`, "resnet", file, sound), 200, ""},
			"form, model last":         {form, "", formOf(file, sound, `model`, "resnet.default"), 200, ""},
			"form, quoted boundary":    {`multipart/form-data; boundary="b"`, "", formOf(`"model"`, "resnet"), 200, ""},
			"form, compressed":         {form, "gzip", zipped(formOf(file, sound, `"model"`, "resnet")), 200, ""},
			"form without a model":     {form, "", formOf(file, sound), 400, "no field model"},
			"form with two":            {form, "", formOf(`"model"`, "resnet", `"model"`, "resnet"), 400, "two fields model"},
			"form of another model":    {form, "", formOf(`"model"`, "bert"), 404, `no model \"bert\"`},
			"form that breaks off":     {form, "", strings.TrimSuffix(formOf(`"model"`, "resnet"), "--b--\r\n"), 400, "form is not valid"},
			"form without a boundary":  {"multipart/form-data", "", formOf(`"model"`, "resnet"), 400, "form is not valid"},
			"form with many fields":    {form, "", formOf(strings.Split(strings.Repeat("a,b,", maxParts)+"model,resnet", ",")...), 400, "more than 1000 fields"},
			"form with a long model":   {form, "", formOf(`"model"`, strings.Repeat("resnet", 1000)), 404, "no model"},
			"JSON in a form's name":    {form, "", chat, 400, "no field model"},
			"compressed":               {"application/json", "gzip", zipped(chat), 200, ""},
			"compressed, another name": {"application/json", "X-GZIP", zipped(chat), 200, ""},
			"compressed, no model":     {"application/json", "gzip", zipped("{}"), 400, "model is missing"},
			"not compressed":           {"application/json", "gzip", chat, 400, "no gzip"},
			"compressed, broken off":   {"application/json", "gzip", zipped(chat)[:20], 400, "no gzip"},
			"compressed, too large":    {"application/json", "gzip", zipped(`{"model":"resnet","a":"` + strings.Repeat("x", 64<<20) + `"}`), 413, "larger than"},
			"not encoded":              {"application/json", "identity", chat, 200, ""},
			"another encoding":         {"application/json", "br", chat, 400, `encoding \"br\"`},
		} {
			headers := []string{"Host", "gateway.example.com", "Path", "/v1/audio/transcriptions", "Content-Type", c.kind}
			if c.encoding != "" {
				headers = append(headers, "Content-Encoding", c.encoding)
			}
			a := w.ask(w.Context(), c.body, headers...)
			if a.status != c.status || !strings.Contains(a.body, c.text) || a.status == 200 && a.body != c.body {
				w.Errorf("%s: %d %.200s, want %d %s", name, a.status, a.body, c.status, c.text)
			}
		}
		if n := w.gateway.bodies.bytes; n != 0 {
			w.Errorf("%d bytes are never released", n)
		}
	})
}

// TestManyCompressedBodies checks that what bodies hold when they are no longer compressed counts in the bound of all bodies.
func TestManyCompressedBodies(t *testing.T) {
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		body := zipped(`{"model":"resnet","a":"` + strings.Repeat("x", 1<<20) + `"}`)
		if !w.gateway.bodies.reserve(maxModelBodies-1<<20, maxModelBodies) {
			w.Fatal("there is no room")
		}
		if a := w.chat(body); a.status != 400 {
			w.Errorf("without its header: %+v", a)
		}
		a := w.ask(w.Context(), body, "Host", "gateway.example.com", "Content-Encoding", "gzip")
		if a.status != 429 || a.reason != reasonQueueFull {
			w.Errorf("%d %.100s", a.status, a.body)
		}
		if n := w.gateway.bodies.bytes; n != maxModelBodies-1<<20 {
			w.Errorf("%d bytes", n)
		}
	})
}

// TestAliases checks which function a model means that may be an alias, as functions come and go.
func TestAliases(t *testing.T) {
	set := func(g *Gateway, namespace, name string, aliases ...string) {
		if err := g.SetFunction(Function{FunctionName: FunctionName{namespace, name}, Protocol: OpenAI, Aliases: aliases}); err != nil {
			t.Fatal(err)
		}
	}
	g := New(Config{})
	check := func(when string, want map[string]string) {
		for model, function := range want {
			got := ""
			if name, ok := g.modelNamed(model); ok {
				got = name.String()
			}
			if got != function {
				t.Errorf("%s: model %q means %q, want %q", when, model, got, function)
			}
		}
	}
	set(g, "default", "chat", "meta-llama/Llama-3.1-8B", "chat:lora-a", "embed")
	set(g, "team", "chat", "meta-llama/Llama-3.1-8B", "own")
	check("at first", map[string]string{
		"chat": "default/chat", "meta-llama/Llama-3.1-8B": "default/chat", "chat:lora-a": "default/chat", "embed": "default/chat",
		"meta-llama/Llama-3.1-8B.team": "team/chat", "own.team": "team/chat", "own": "", "meta-llama/llama-3.1-8b": "", "own.default": "", "": "", ".": "",
	})
	set(g, "default", "embed")
	set(g, "default", "bert", "chat:lora-a", "chat", "own.team", "chat.team", "none.team")
	check("with others of the same names", map[string]string{"embed": "default/embed", "chat:lora-a": "default/bert", "chat": "default/chat",
		"own.team": "team/chat", "chat.team": "team/chat", "none.team": "default/bert"})
	set(g, "default", "bert")
	set(g, "default", "chat", "new")
	check("with other aliases", map[string]string{"chat:lora-a": "", "meta-llama/Llama-3.1-8B": "", "new": "default/chat"})
	g.RemoveFunction(FunctionName{"default", "chat"})
	g.RemoveFunction(FunctionName{"default", "embed"})
	g.RemoveFunction(FunctionName{"default", "bert"})
	check("with the others removed", map[string]string{"new": "", "chat": "", "own.team": "team/chat"})
	if err := g.SetFunction(Function{FunctionName: FunctionName{"team", "chat"}, Aliases: []string{"own"}}); err != nil {
		t.Fatal(err)
	}
	check("with another protocol", map[string]string{"own.team": "", "chat.team": ""})
	if len(g.aliases) != 0 || len(g.models) != 0 {
		t.Errorf("left over: %v %v", g.aliases, g.models)
	}
}

// TestModelsOfAliases checks that requests reach the function that has an alias, and that clients see which there are.
func TestModelsOfAliases(t *testing.T) {
	start(t, Function{Protocol: OpenAI, Aliases: []string{"meta-llama/Llama-3.1-8B", "resnet:lora-a"}}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		if err := w.gateway.SetFunction(Function{FunctionName: FunctionName{"team", "bert"}, Protocol: OpenAI, Aliases: []string{"B", "resnet.default"}}); err != nil {
			w.Fatal(err)
		}
		for _, model := range []string{"meta-llama/Llama-3.1-8B", "resnet:lora-a", "meta-llama/Llama-3.1-8B.default"} {
			body := fmt.Sprintf(`{"model":%q}`, model)
			if a := w.chat(body); a.status != 200 || a.body != body {
				w.Errorf("%s: %+v", model, a)
			}
		}
		entry := func(id, owner string) string {
			return fmt.Sprintf(`{"id":%q,"object":"model","created":0,"owned_by":%q}`, id, owner)
		}
		for path, want := range map[string]string{
			"/v1/models": `{"object":"list","data":[` + strings.Join([]string{entry("resnet", "default"), entry("meta-llama/Llama-3.1-8B", "default"),
				entry("resnet:lora-a", "default"), entry("bert.team", "team"), entry("B.team", "team"), entry("resnet.default.team", "team")}, ",") + `]}`,
			"/v1/models/meta-llama/Llama-3.1-8B":   entry("meta-llama/Llama-3.1-8B", "default"),
			"/v1/models/meta-llama%2FLlama-3.1-8B": entry("meta-llama/Llama-3.1-8B", "default"),
			"/v1/models/RESNET":                    entry("resnet", "default"),
			"/v1/models/B.team":                    entry("B.team", "team"),
		} {
			a := w.raw("GET "+path+" HTTP/1.0\r\nHost: gateway.example.com\r\n\r\n", 1<<16)
			if !strings.HasPrefix(a.body, "HTTP/1.0 200 ") || !strings.HasSuffix(a.body, "\r\n\r\n"+want) {
				w.Errorf("%s: %s\nwant %s", path, a.body, want)
			}
		}
	})
}

// TestOptions checks that a browser may call a model for a page of another origin, which no replica need run for, and that a function's own server answers
// for itself.
func TestOptions(t *testing.T) {
	const asks = "Connection: close\r\nOrigin: http://page.example.com\r\nAccess-Control-Request-Method: POST\r\n" +
		"Access-Control-Request-Headers: authorization,content-type\r\n\r\n"
	start(t, Function{Protocol: OpenAI, Hold: Hold{Requests: 1, For: ms}}, func(w *world) {
		ask := func(host, path string) string {
			return w.raw("OPTIONS "+path+" HTTP/1.1\r\nHost: "+host+"\r\n"+asks, 1<<16).body
		}
		got := ask("127.0.0.1:8080", "/v1/chat/completions")
		for _, want := range []string{"HTTP/1.1 204 ", "Access-Control-Allow-Origin: *\r\n", "Access-Control-Allow-Methods: GET, HEAD, POST\r\n",
			"Access-Control-Allow-Headers: authorization,content-type\r\n"} {
			if !strings.Contains(got, want) {
				w.Errorf("no %q in %q", want, got)
			}
		}
		if l := w.gateway.Load(resnet); l.Arrived != 0 {
			w.Errorf("%+v", l)
		}
		if got := ask("127.0.0.1:8080", "/other"); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
			w.Errorf("another path: %q", got)
		}
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { rw.Header().Set("X-A", r.Method) }), 1, 0, "a")
		if got := ask("resnet", "/v1/chat/completions"); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "X-A: OPTIONS\r\n") {
			w.Errorf("of a function: %q", got)
		}
		if got := w.raw("HEAD /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 1<<16).body; !strings.HasSuffix(got, "\r\n\r\n") ||
			!strings.Contains(got, "Access-Control-Allow-Origin: *\r\n") {
			w.Errorf("list: %q", got)
		}
		w.gateway.RemoveFunction(resnet)
		if got := ask("127.0.0.1:8080", "/v1/chat/completions"); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
			w.Errorf("without models: %q", got)
		}
	})
}
