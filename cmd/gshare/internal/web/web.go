// Package web serves the packing map of a cluster as a page for browsers: its slices with their shares, drawn as by gshare map --svg.
// It only reads nodes and pods.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
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

// Options holds the address and the certificate files with which the page is served.
type Options struct {
	Address  string // host:port
	CertFile string // PEM; without a file, a self-signed certificate for localhost is made and kept in memory
	KeyFile  string
}

// shutdownTimeout is how long the server waits for requests in progress when it stops.
const shutdownTimeout = time.Second

// Serve serves the page over HTTPS until the context is cancelled. It calls ready with the address once it listens.
func Serve(ctx context.Context, client kubernetes.Interface, o Options, ready func(net.Addr)) error {
	certificate, err := o.certificate()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler(client),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       90 * time.Second,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.ServeTLS(listener, "", "") }()
	klog.InfoS("serving packing map", "address", listener.Addr(), "path", Path)
	ready(listener.Addr())
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(last); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}

// handler returns the HTTP handler of the page, behind the API server's access control, and of the probe path, which needs no
// authentication.
func handler(client kubernetes.Interface) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProbePath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/", WithAccessControl(Handler(client), client))
	return mux
}

// certificate returns the callback from which the TLS server gets its certificate. The callback reads the files for each connection, so that a
// renewed certificate takes effect at once.
func (o *Options) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if o.CertFile != "" || o.KeyFile != "" {
		load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			return &pair, err
		}
		_, err := load(nil)
		return load, err
	}
	crt, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(crt, key)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}
