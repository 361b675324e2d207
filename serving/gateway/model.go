package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds of the bodies that findModel reads: of one request, and of all at once.
const (
	maxModelBody   = 64 * share.MiB
	maxModelBodies = 256 * share.MiB
)

// findModel sets the function of a request whose host, which has been parsed, names none that the sender may call. With the protocol OpenAI the body
// names a model, FUNCTION or FUNCTION.NAMESPACE, or an alias of it, which is the function; for a WebSocket the query does. For that the body is read
// before the request is admitted, and only if any function has this protocol.
func (e *exchange) findModel(host FunctionName) refusal {
	g, query := e.gateway, e.request.URL.Query()["model"]
	inQuery := isUpgrade(e.request) && len(query) == 1
	if e.request.Method != http.MethodPost && !inQuery || !strings.HasPrefix(e.request.URL.Path, "/v1/") || !g.hasModels() {
		return e.sender.unknown("function", e.request.Host, "host", host)
	}
	var model string
	var why refusal
	if inQuery {
		model = query[0]
	} else {
		model, why = e.modelInBody()
	}
	if why.status != 0 {
		if !e.sender.unchecked && host.Namespace != "" {
			_, _ = e.sender.caller() // takes as long as if the host named a function of another namespace
		}
		return why
	}
	if named, ok := g.modelNamed(model); ok {
		e.function = e.sender.callable(named)
	}
	if e.function == nil {
		return e.sender.unknown("model", model, "model", parseModel(model))
	}
	return refusal{}
}

// parseModel returns the function that a model names.
func parseModel(model string) FunctionName {
	name, namespace, _ := strings.Cut(strings.ToLower(model), ".")
	return FunctionName{Namespace: cmp.Or(namespace, defaultNamespace), Name: name}
}

// askedModel returns the model of a request for the description of one.
func askedModel(r *http.Request) (model string, ok bool) {
	model, ok = strings.CutPrefix(r.URL.Path, "/v1/models/")
	return model, ok && model != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// writeOptions answers a request for the options of a path of the OpenAI API, in which nothing names a function: browsers send it before a page of another
// origin may call a model. Whether the page may read the answer is for the model's server to say.
func (e *exchange) writeOptions() {
	h := e.writer.Header()
	h.Set("Allow", "GET, HEAD, POST, OPTIONS")
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	if names := e.request.Header[requestHeadersHeader]; len(names) > 0 {
		h.Set("Access-Control-Allow-Headers", strings.Join(names, ", "))
	}
	h.Set("Access-Control-Max-Age", "600")
	e.writer.WriteHeader(http.StatusNoContent)
}

// describeModel answers with the entry of a model in the list, if the caller may call it.
func (e *exchange) describeModel(model string) {
	named, ok := e.gateway.modelNamed(model)
	if !ok || e.sender.callable(named) == nil {
		e.refuseUnnamed(e.sender.unknown("model", model, "model", parseModel(model)))
		return
	}
	if named == parseModel(model) {
		model = modelID(named.Namespace, named.Name)
	}
	writeModelJSON(e.writer, listedModel{model, "model", 0, named.Namespace})
}

// alias is a name of a model besides that of its function. It is unique among those of a namespace.
type alias struct{ namespace, name string }

// setModel changes which models there are. of is nil if the function has none.
func (k *known) setModel(name FunctionName, of *Function) {
	for _, text := range k.models[name] {
		a := alias{name.Namespace, text}
		if k.aliases[a] = slices.DeleteFunc(k.aliases[a], func(n FunctionName) bool { return n == name }); len(k.aliases[a]) == 0 {
			delete(k.aliases, a)
		}
	}
	delete(k.models, name)
	if of == nil || of.Protocol != OpenAI {
		return
	}
	k.models[name] = slices.Clone(of.Aliases)
	for _, text := range of.Aliases {
		a := alias{name.Namespace, text}
		k.aliases[a] = append(k.aliases[a], name)
		slices.SortFunc(k.aliases[a], compareNames)
	}
}

// modelNamed returns the function with the protocol OpenAI that a model names: the one of this name, or else the first one that has it as an alias,
// ALIAS.NAMESPACE or ALIAS. The namespace goes first, so that an alias of the default one takes no requests from another's.
func (g *Gateway) modelNamed(model string) (FunctionName, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	name := parseModel(model)
	if _, ok := g.models[name]; ok {
		return name, true
	}
	if dot := strings.LastIndexByte(model, '.'); dot >= 0 {
		if of := g.aliases[alias{model[dot+1:], model[:dot]}]; len(of) > 0 {
			return of[0], true
		}
	}
	if of := g.aliases[alias{defaultNamespace, model}]; len(of) > 0 {
		return of[0], true
	}
	return FunctionName{}, false
}

// modelIDs returns the names that lead to a model: that of its function, and its aliases.
func (g *Gateway) modelIDs(name FunctionName) []string {
	g.mu.RLock()
	aliases := g.models[name]
	g.mu.RUnlock()
	ids := []string{modelID(name.Namespace, name.Name)}
	for _, text := range aliases {
		id := modelID(name.Namespace, text)
		if got, _ := g.modelNamed(id); got == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// modelID returns the model with which a request names a function, or an alias of one, of a namespace.
func modelID(namespace, name string) string {
	if namespace == defaultNamespace {
		return name
	}
	return name + "." + namespace
}

// hasModels reports whether there is a function with the protocol OpenAI.
func (g *Gateway) hasModels() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.models) > 0
}

// isModelList reports whether a request asks for the list of models.
func isModelList(r *http.Request) bool {
	return r.URL.Path == "/v1/models" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// listedModel is an entry of OpenAI's list of models.
type listedModel struct {
	ID      string `json:"id"` // the name in requests
	Object  string `json:"object"`
	Created int64  `json:"created"` // seconds; not known
	OwnedBy string `json:"owned_by"`
}

// writeModels answers with the list of the functions with the protocol OpenAI that the caller may call.
func (g *Gateway) writeModels(w http.ResponseWriter, may func(FunctionName) bool) {
	list := struct {
		Object string        `json:"object"`
		Data   []listedModel `json:"data"`
	}{"list", []listedModel{}}
	for _, name := range g.modelNames() {
		if !may(name) {
			continue
		}
		for _, id := range g.modelIDs(name) {
			list.Data = append(list.Data, listedModel{id, "model", 0, name.Namespace})
		}
	}
	writeModelJSON(w, list)
}

func writeModelJSON(w http.ResponseWriter, content any) {
	text, _ := json.Marshal(content) // never fails for strings
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the client has gone if it fails
}

// modelNames returns the names of the functions with the protocol OpenAI, sorted.
func (g *Gateway) modelNames() (names []FunctionName) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for name := range g.models {
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	return names
}
