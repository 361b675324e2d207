// Package web serves the packing map of a cluster as a page for browsers: its slices with their shares, drawn as by gshare map --svg.
// It only reads nodes and pods.
package web

import (
	"net/http"

	"k8s.io/client-go/kubernetes"
)

const (
	// Path is the URL path of the page. Users need the verb get on it as a nonResourceURL.
	Path = "/gshare/map"
	// ProbePath is the URL path of liveness and readiness probes, which is served without authentication.
	ProbePath = "/healthz"
)

// contentPolicy is the Content-Security-Policy header: a browser must not run or load anything, as the page contains its style.
const contentPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler returns the HTTP handler of the page, without access control. The query node=NAME selects one node.
func Handler(client kubernetes.Interface) http.Handler {
	cluster := &clusterCache{client: client}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		nodes, err := cluster.read(r.Context())
		if err != nil {
			failUnavailable(w, "read the cluster", err)
			return
		}
		setHeader(w.Header())
		_, _ = w.Write(render(nodes, r.URL.Query().Get("node"))) // fails if the client has disconnected
	})
	return mux
}

func setHeader(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}
