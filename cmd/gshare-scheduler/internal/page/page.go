// Package page serves the live packing map of a cluster: its slices with their shares, drawn as by kubectl gshare map --svg. It
// reads nodes and pods, and writes nothing.
package page

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Path is the page. Who may get it as a nonResourceURL may see it.
const Path = "/gshare/map"

// policy lets a browser run nothing and load nothing; the page has its style in itself.
const policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed page.html
var text string

var layout = template.Must(template.New("page").Parse(text))

// Handler is the page, for whom the guard lets through. The query node=NAME shows one node.
func Handler(client kubernetes.Interface) http.Handler {
	cluster := &cluster{client: client}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		nodes, err := cluster.read(r.Context())
		if err != nil {
			fail(w, "read the cluster", err)
			return
		}
		var b bytes.Buffer
		if err := layout.Execute(&b, viewOf(nodes, r.URL.Query().Get("node"))); err != nil {
			fail(w, "write the page", err)
			return
		}
		header(w.Header())
		_, _ = w.Write(b.Bytes()) // who has left does not read
	})
	return mux
}

func header(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// fail keeps the reason in the log: whoever sees the page need not know what the scheduler may read.
func fail(w http.ResponseWriter, what string, err error) {
	klog.ErrorS(err, "Packing map", "failed to", what)
	http.Error(w, "cannot "+what+"; the scheduler's log says why", http.StatusServiceUnavailable)
}
