package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/serving/oip"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds of the bodies that findModel reads: of one request, and of all at once.
const (
	maxModelBody   = 64 * share.MiB
	maxModelBodies = 256 * share.MiB
)

// findModel sets the function of a request whose host, which has been parsed, names none that the sender may call. With the protocol OpenAI the body
// names a model, FUNCTION or FUNCTION.NAMESPACE, which is the function; for a WebSocket the query does. For that the body is read before the request is
// admitted, and only if any function has this protocol.
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
	named := parseModel(model)
	if !g.isModel(named) {
		return e.sender.unknown("model", model, "model", named)
	}
	if e.function = e.sender.callable(named); e.function == nil {
		return e.sender.unknown("model", model, "model", named)
	}
	return refusal{}
}

// modelInBody reads the body and returns the model that it names.
func (e *exchange) modelInBody() (model string, why refusal) {
	reserved, why := e.readBody(&e.gateway.bodies, maxModelBody, maxModelBodies)
	e.modelBody = reservation{&e.gateway.bodies, reserved}
	if why.status != 0 {
		return "", why
	}
	model, err := oip.ModelOf(e.body)
	if err != nil {
		return "", newRefusal(causeBadRequest, err.Error())
	}
	return model, refusal{}
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

// describeModel answers with the entry of a model in the list, if the caller may call it.
func (e *exchange) describeModel(model string) {
	named := parseModel(model)
	if !e.gateway.isModel(named) || e.sender.callable(named) == nil {
		e.refuseUnnamed(e.sender.unknown("model", model, "model", named))
		return
	}
	writeModelJSON(e.writer, newListedModel(named))
}

// isModel reports whether there is a function of this name with the protocol OpenAI.
func (g *Gateway) isModel(name FunctionName) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.models[name]
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
		list.Data = append(list.Data, newListedModel(name))
	}
	writeModelJSON(w, list)
}

func newListedModel(name FunctionName) listedModel {
	id := name.Name
	if name.Namespace != defaultNamespace {
		id += "." + name.Namespace
	}
	return listedModel{ID: id, Object: "model", OwnedBy: name.Namespace}
}

func writeModelJSON(w http.ResponseWriter, content any) {
	text, _ := json.Marshal(content) // never fails for strings
	w.Header().Set("Content-Type", "application/json")
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
