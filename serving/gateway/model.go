package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/gshare-dev/gshare/serving/oip"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds of the bodies that are read to find the model, of one request and of all at once.
const (
	maxModelBody   = 64 * share.MiB
	maxModelBodies = 256 * share.MiB
)

// findModel sets the function of a request whose host names none: with the protocol OpenAI a body names its model, which is FUNCTION or
// FUNCTION.NAMESPACE. The body is read for that before the request is admitted, and only if there is a function with this protocol.
func (e *exchange) findModel() refusal {
	unknown := newRefusal(http.StatusNotFound, reasonUnknown, fmt.Sprintf("no function %q: the host of a request is FUNCTION or FUNCTION.NAMESPACE", e.request.Host))
	g := e.gateway
	if e.request.Method != http.MethodPost || !strings.HasPrefix(e.request.URL.Path, "/v1/") || !g.hasModels() {
		return unknown
	}
	reserved, why := e.readBody(&g.bodies, maxModelBody, maxModelBodies)
	defer g.bodies.release(reserved) // it is the function's from then on
	if why.status != 0 {
		return why
	}
	model, err := oip.ModelOf(e.body)
	if err != nil {
		return newRefusal(http.StatusBadRequest, reasonBadRequest, err.Error())
	}
	name, namespace, _ := strings.Cut(strings.ToLower(model), ".")
	f := g.function(FunctionName{Namespace: cmp.Or(namespace, defaultNamespace), Name: name})
	if f == nil || f.settings().Protocol != OpenAI {
		return newRefusal(http.StatusNotFound, reasonUnknown, fmt.Sprintf("no model %.100q: the model of a request is FUNCTION or FUNCTION.NAMESPACE", model))
	}
	e.function = f
	return refusal{}
}

// hasModels reports whether there is a function with the protocol OpenAI.
func (g *Gateway) hasModels() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.models) > 0
}
